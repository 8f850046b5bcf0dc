//===- SourceLimits.h - What text the parser can bear -----------*- C++ -*-===//
#ifndef STRETTO_FRONTENDS_C_SOURCELIMITS_H
#define STRETTO_FRONTENDS_C_SOURCELIMITS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace stretto {

/// MLIR's parser recurses at every bracket and at every operator of an affine expression, so text from outside can
/// exhaust its stack. Fails for text that is nested deeper, or holds a longer expression, than any program of ours; the
/// error names the line.
llvm::Error checkSourceLimits(llvm::StringRef text);

} // namespace stretto

#endif // STRETTO_FRONTENDS_C_SOURCELIMITS_H
