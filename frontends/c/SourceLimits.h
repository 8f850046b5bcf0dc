//===- SourceLimits.h - What text the parser can bear -----------*- C++ -*-===//
#ifndef STRETTO_FRONTENDS_C_SOURCELIMITS_H
#define STRETTO_FRONTENDS_C_SOURCELIMITS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace stretto {

/// MLIR's parser trusts its input in two ways, which text from outside can exploit.
///
/// - It recurses at every bracket and at every operator of an affine expression, until the stack ends. Refused is what
///   is nested deeper, or holds a longer expression, than any program of ours.
/// - It lets a name be used before it is defined, even by a region that follows; if that region then turns out to be
///   malformed, the use dangles. Refused are declarations with such names, which none needs.
///
/// The error names the line, where `text` begins at `firstLine`.
llvm::Error checkSource(llvm::StringRef text, size_t firstLine = 1);

} // namespace stretto

#endif // STRETTO_FRONTENDS_C_SOURCELIMITS_H
