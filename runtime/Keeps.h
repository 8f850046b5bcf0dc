//===- Keeps.h - What calls keep of their states ----------------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_KEEPS_H
#define STRETTO_RUNTIME_KEEPS_H

namespace stretto {

/// What a kernel of results keeps of its states for a gradient (KeptStates.h, stretto-keep-states).
enum class Keeps {
  Nothing,
  /// Those at the start of each chunk, as products read them.
  Chunks,
  /// Those at the start of segments, as they are.
  Segments
};

} // namespace stretto

#endif // STRETTO_RUNTIME_KEEPS_H
