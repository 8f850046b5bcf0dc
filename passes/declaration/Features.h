//===- Features.h - Rows that are found before all else ---------*- C++ -*-===//
//
// A feature map multiplies a row with a matrix of parameters, perhaps behind a convolution and in front of a softmax,
// and depends on no state. Found where states are carried, it stands in the chain from chunk to chunk, and is found
// anew by each kernel, in each slice of the values, and takes registers that longer chunks would want. So a declaration
// with feature maps is split: some parts find the rows which states are made of and read by, each those that are made
// of the same rows, and the rest has them as arguments and is a recurrence like any other. A call runs all, one after
// the other, and its gradient those of all, from last to first. Logarithms of decays that cost something to find are
// found with the features.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_FEATURES_H
#define STRETTO_PASSES_DECLARATION_FEATURES_H

#include "dialect/stretto/StrettoDialect.h"

namespace stretto {

/// What follows the name of a declaration in those of its parts, of those that find features in front of their number;
/// and what the arguments that the rest has for features begin with, in front of the number of the result among those
/// of all parts.
inline constexpr llvm::StringLiteral featuresSuffix = "_features_", restSuffix = "_rest", featurePrefix = "feature_";

/// Marks an argument of the former that decays are made of, whose type may be wider than that of other rows.
inline constexpr llvm::StringLiteral gateAttribute = "stretto.gate";

/// How a program is to be split: how many parts find features, one where these have few numbers together; and how many
/// do for a gradient, which goes back through one after the other, so that cotangents of features take memory for as
/// short as can be.
struct FeatureSplit {
  unsigned parts = 0;
  bool together = false;
  unsigned partsOfGradient = 0;
};

/// None where a program has no features, or they have more numbers than a few of its rows. A program that looks back
/// has none: windows hold rows of inputs, of which features would be found anew.
FeatureSplit chooseFeatureSplit(VariantOp program);

/// Puts its parts in place of a program that has features, which are found together or by as many parts as can be.
void splitFeatures(VariantOp program, bool together);

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_FEATURES_H
