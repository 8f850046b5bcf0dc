//===- Specialize.h - Fixes sizes, options and arguments --------*- C++ -*-===//
#ifndef STRETTO_PASSES_DECLARATION_SPECIALIZE_H
#define STRETTO_PASSES_DECLARATION_SPECIALIZE_H

#include "dialect/stretto/Sizes.h"

namespace stretto {

/// Rewrites `variant` into the program that `settings` choose: one alternative, static where sizes are known. Two ways
/// to the same program give the same text.
mlir::LogicalResult specialize(VariantOp variant, const Settings &settings);

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_SPECIALIZE_H
