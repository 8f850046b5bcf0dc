# The reference: the target stretto-doc lets mlir-tblgen write one page per dialect, and one for the passes, into
# <build>/docs/reference. `make docs` publishes them.
add_custom_target(stretto-doc)

# Adds a page that is generated from LLVM_TARGET_DEFINITIONS.
#   stretto_reference(<page> <generator and its options>...)
function(stretto_reference page)
  tablegen(MLIR ${page}.md ${ARGN} "-I${CMAKE_SOURCE_DIR}")
  set(collected ${CMAKE_BINARY_DIR}/docs/reference/${page}.md)
  add_custom_command(OUTPUT ${collected} DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/${page}.md
    COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_CURRENT_BINARY_DIR}/${page}.md ${collected})
  add_custom_target(stretto-doc-${page} DEPENDS ${collected})
  add_dependencies(stretto-doc stretto-doc-${page})
endfunction()
