//===- Knobs.h - Settings from the environment ------------------*- C++ -*-===//
//
// Every environment variable that stretto reads, in one place. They are read once, when first needed.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_KNOBS_H
#define STRETTO_RUNTIME_KNOBS_H

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace stretto {

struct Knobs {
  /// STRETTO_CACHE_DIR: where compiled kernels are kept; empty: nowhere. Unset: the user's cache folder.
  std::optional<std::string> cacheDirectory;

  /// STRETTO_CACHE_MEGABYTES: how much is kept before the entries used least recently go. Default 1024.
  uint64_t cacheBytes = uint64_t(1024) << 20;

  /// STRETTO_IDLE_MEGABYTES: how much memory of the host at most is kept when no tensor has it any more, for later
  /// calls. Default 512.
  uint64_t idleBytes = uint64_t(512) << 20;

  /// STRETTO_DUMP: a folder that receives the IR after each stage and the code of every kernel that is compiled.
  std::optional<std::string> dumpDirectory;

  /// STRETTO_PTXAS: the program that assembles PTX (runtime/Assembler.h); empty: the driver does.
  std::string assembler;

  /// STRETTO_DEBUG: whether contents are checked on devices too, at the cost of waiting for them: 1 or 0. Default 0.
  /// May be changed at run time.
  std::atomic<bool> debug = false;

  /// STRETTO_SEGMENT: the chunks of a segment of a gradient; 0: as memory allows. Default 0. May be changed at run
  /// time.
  std::atomic<int64_t> segment = 0;

  /// STRETTO_LONG_SEGMENT: where STRETTO_SEGMENT is given, how many segments a long one consists of, whose starts are
  /// kept while it is walked; 0: there are none. Default 0. May be changed at run time.
  std::atomic<int64_t> longSegment = 0;

  /// STRETTO_SEQUENCES: how many sequences of a call, if these are not packed, its gradient walks at a time; 0: as
  /// memory allows. Default 0. May be changed at run time.
  std::atomic<int64_t> sequences = 0;

  /// STRETTO_SEGMENTS: into how many segments sequences of calls are divided that run side by side, where they can be;
  /// 1: none; 0: as many as idle multiprocessors take. Default 0. May be changed at run time.
  std::atomic<int64_t> segments = 0;

  /// STRETTO_SLICES: among how many blocks or threads the values of a head's gradient are divided at least, a power of
  /// two; 0: as many as the call leaves idle. Default 0. May be changed at run time.
  std::atomic<int64_t> slices = 0;

  /// STRETTO_AHEAD: how many further warps of a block compute what no state reaches on a GPU, a power of two; 0: none;
  /// "auto", here fewer than 0: as many as the model finds worth their while. Default "auto".
  std::atomic<int64_t> ahead = -1;

  /// STRETTO_OUTPUTS: how many further warps of a block find outputs behind those that walk on a GPU, where none run
  /// ahead, a power of two; 0: none; "auto", here fewer than 0: as many as the model finds worth their while.
  /// Default "auto".
  std::atomic<int64_t> outputs = -1;

  /// STRETTO_WALKS: how many walks back a gradient has, 1 or 2, as far as states of reverse time can be told apart; 0:
  /// the model chooses. Default 0. May be changed at run time.
  std::atomic<int64_t> walks = 0;

  /// STRETTO_WALK_SLICES: among how many slices at most walks of a gradient that carry states alone divide these, a
  /// power of two; 0: as many as the call leaves idle. Default 0. May be changed at run time.
  std::atomic<int64_t> walkSlices = 0;

  /// STRETTO_TILES: whether products of bf16 are formed by AMX where the processor has it: 1 or 0. Default 1.
  bool tiles = true;

  /// STRETTO_TUNED: whether forms that a tuner found, here or for the shipped table, are taken: 1 or 0. Default 1.
  bool tuned = true;

  /// STRETTO_FEATURES: whether feature maps are found before all else, by kernels of their own
  /// (passes/declaration/Features.h): 1 or 0. Default: on GPUs.
  std::optional<bool> features;

  /// STRETTO_GROUPS: into how many groups of sequences and heads gradients are divided whose features were found before
  /// all else, where there are so many; 0: as memory allows. Default 0. May be changed at run time.
  std::atomic<int64_t> groups = 0;

  /// STRETTO_KEEP_STATES: whether calls that are recorded keep states for their gradients where these take them, and
  /// features that were found before all else: 1 or 0. Default 1. May be changed at run time.
  std::atomic<bool> keepStates = true;

  static Knobs &instance();

private:
  Knobs();
};

} // namespace stretto

#endif // STRETTO_RUNTIME_KNOBS_H
