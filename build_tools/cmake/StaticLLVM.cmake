# Links LLVM and MLIR into a library from their archives, so that it needs neither where it runs.
#
# The archives are named by path: CMake's imported targets for MLIR's archives carry libLLVM.so in their link
# interface, and LLVM twice in one process dies at start ("Option ... registered more than once"). The linker takes
# from the group what is used; nothing of it is exported.
function(stretto_link_llvm_archives target)
  file(GLOB archives ${LLVM_LIBRARY_DIR}/libMLIR*.a ${LLVM_LIBRARY_DIR}/libLLVM*.a)
  if(NOT archives)
    message(FATAL_ERROR "STRETTO_STATIC_LLVM needs the archives of LLVM and MLIR, found none in ${LLVM_LIBRARY_DIR}")
  endif()
  # Test dialects, and what would bring a second copy through the C interface.
  list(FILTER archives EXCLUDE REGEX "libMLIR(Test|CAPI)")
  find_package(ZLIB REQUIRED)
  find_library(STRETTO_ZSTD NAMES libzstd.a zstd REQUIRED)
  target_link_libraries(${target} PRIVATE -Wl,--start-group ${archives} -Wl,--end-group
                        ZLIB::ZLIB ${STRETTO_ZSTD} ${CMAKE_DL_LIBS} pthread m)
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL)
endfunction()
