# The imported target LibTorch: PyTorch's C++ headers and libraries, from the Python environment in Python3_EXECUTABLE.
#
# PyTorch's own CMake package is not used. Built for CUDA, it refuses to be found where no CUDA toolkit is installed,
# and the operators need none: they call the driver, which the runtime opens when it first launches a kernel.
execute_process(
  COMMAND ${Python3_EXECUTABLE} -c "import torch; print(torch.__version__, *torch.__path__, sep=';')"
  OUTPUT_VARIABLE found
  OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${Python3_EXECUTABLE} cannot import torch, which requirements.txt lists")
endif()
list(GET found 0 TORCH_VERSION)
list(GET found 1 TORCH_FOLDER)
message(STATUS "PyTorch ${TORCH_VERSION}: ${TORCH_FOLDER}")

add_library(LibTorch INTERFACE IMPORTED)
target_include_directories(LibTorch SYSTEM INTERFACE
  ${TORCH_FOLDER}/include ${TORCH_FOLDER}/include/torch/csrc/api/include)
target_link_libraries(LibTorch INTERFACE ${TORCH_FOLDER}/lib/libtorch_cpu.so ${TORCH_FOLDER}/lib/libc10.so)
