//===- Windows.h - The tokens that later tokens look back to ----*- C++ -*-===//
//
// A sequence that is continued needs the rows of its last tokens where these are looked back to: by look-backs
// themselves, and by reads of a state at an earlier time, which is carried as of that time of the last token, so that
// what was written since is written again. Both keep the arguments that the rows are computed from.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_DIALECT_STRETTO_WINDOWS_H
#define STRETTO_DIALECT_STRETTO_WINDOWS_H

#include "dialect/stretto/StrettoDialect.h"
#include <optional>
#include <vector>

namespace stretto {

/// The last rows of one argument, in time order, the newest last.
struct Window {
  std::string name; // of the entry in the state object
  unsigned argument = 0;
  int64_t length = 0;
};

/// By how much a time differs from a multiple of its token's position.
struct TimeBounds {
  double slope = 0, lower = 0, upper = 0;
};

/// The bounds of a time that is computed from the position and constants; nothing for others.
std::optional<TimeBounds> boundsOf(mlir::Value time);

/// The windows of a variant whose alternatives are decided, all of one length. Nothing where it looks back without a
/// bound, or to rows that are not computed from arguments of the same token alone.
std::optional<std::vector<Window>> deriveWindows(VariantOp variant);

} // namespace stretto

#endif // STRETTO_DIALECT_STRETTO_WINDOWS_H
