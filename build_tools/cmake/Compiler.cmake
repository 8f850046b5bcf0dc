# libstretto.so: exactly one library holds the compiler. The tools, the Python module and the PyTorch
# operators link to it and see its C interface only.
file(GLOB_RECURSE STRETTO_COMPILER_SOURCES CONFIGURE_DEPENDS
  ${CMAKE_SOURCE_DIR}/dialect/*.cpp
  ${CMAKE_SOURCE_DIR}/passes/*.cpp
  ${CMAKE_SOURCE_DIR}/codegen/*.cpp
  ${CMAKE_SOURCE_DIR}/runtime/*.cpp
  ${CMAKE_SOURCE_DIR}/frontends/c/*.cpp)
list(FILTER STRETTO_COMPILER_SOURCES EXCLUDE REGEX "/runtime/torch/")

# The objects stand apart so that unit tests, which see more than the C interface, can link them too.
add_library(stretto-objects OBJECT ${STRETTO_COMPILER_SOURCES})
# Without a time stamp a precompiled header that is built again is the same file, and ccache knows what it made with it.
target_compile_options(stretto-objects PRIVATE
  -fno-exceptions $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang\ -fno-pch-timestamp>)
target_precompile_headers(stretto-objects PRIVATE ${CMAKE_SOURCE_DIR}/build_tools/cmake/Precompiled.h)
add_custom_target(stretto-tablegen) # every generated header
add_dependencies(stretto-objects stretto-tablegen)

# Links the compiler into a library or an executable, with LLVM and MLIR as this build has them.
function(stretto_link_compiler target)
  target_link_libraries(${target} PRIVATE stretto-objects)
  if(STRETTO_STATIC_LLVM)
    include(StaticLLVM)
    stretto_link_llvm_archives(${target})
  else()
    target_link_libraries(${target} PRIVATE MLIR LLVM)
  endif()
endfunction()

add_library(stretto SHARED)
target_link_options(stretto PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/build_tools/cmake/exports.map)
stretto_link_compiler(stretto)
