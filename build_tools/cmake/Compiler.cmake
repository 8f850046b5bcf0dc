# libstretto.so: exactly one library holds the compiler. The tools, the Python module and the PyTorch
# operators link to it and see its C interface only.
file(GLOB_RECURSE STRETTO_COMPILER_SOURCES CONFIGURE_DEPENDS
  ${CMAKE_SOURCE_DIR}/dialect/*.cpp
  ${CMAKE_SOURCE_DIR}/passes/*.cpp
  ${CMAKE_SOURCE_DIR}/codegen/*.cpp
  ${CMAKE_SOURCE_DIR}/runtime/*.cpp
  ${CMAKE_SOURCE_DIR}/frontends/c/*.cpp)
list(FILTER STRETTO_COMPILER_SOURCES EXCLUDE REGEX "/runtime/torch/")

add_library(stretto SHARED ${STRETTO_COMPILER_SOURCES})
# Without a time stamp a precompiled header that is built again is the same file, and ccache knows what it made with it.
target_compile_options(stretto PRIVATE -fno-exceptions $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang\ -fno-pch-timestamp>)
target_precompile_headers(stretto PRIVATE ${CMAKE_SOURCE_DIR}/build_tools/cmake/Precompiled.h)
target_link_options(stretto PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/build_tools/cmake/exports.map)
add_custom_target(stretto-tablegen) # every generated header
add_custom_target(stretto-doc)      # every generated reference page
add_dependencies(stretto stretto-tablegen)

if(STRETTO_STATIC_LLVM)
  include(StaticLLVM)
  stretto_link_llvm_archives(stretto)
else()
  target_link_libraries(stretto PRIVATE MLIR LLVM)
endif()

# A page of the reference, written by mlir-tblgen from LLVM_TARGET_DEFINITIONS into <build>/docs/reference.
#   stretto_reference(<page> <generator and its options>...)
function(stretto_reference page)
  tablegen(MLIR ${page}.md ${ARGN} "-I${CMAKE_SOURCE_DIR}")
  set(published ${CMAKE_BINARY_DIR}/docs/reference/${page}.md)
  add_custom_command(OUTPUT ${published} DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/${page}.md
    COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_CURRENT_BINARY_DIR}/${page}.md ${published})
  add_custom_target(stretto-doc-${page} DEPENDS ${published})
  add_dependencies(stretto-doc stretto-doc-${page})
endfunction()
