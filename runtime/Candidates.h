//===- Candidates.h - The forms among which one is chosen -------*- C++ -*-===//
//
// To look at a form is to derive it and to plan its kernels, which takes some ten milliseconds, and a search may ask
// for dozens. What each is like depends on nothing but its shape. So threads, each with a context of its own, look at
// those that are likely to be asked for, while the search goes on in its order: it finds what they have found, waits
// for what they are looking at, and looks itself at all else. What is chosen is the same.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_CANDIDATES_H
#define STRETTO_RUNTIME_CANDIDATES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace stretto {

/// What there is to know of a form.
struct Candidate {
  std::string refusal; // why there is none
  /// Whether its walks solve systems of more tokens than are worth it: then it is not looked at any further.
  bool solvesTooMuch = false;
  int64_t slices = 1;  // into which it is divided
  std::string problem; // why it does not fit
  int64_t registers = 0, warps = 0, ahead = 0, outputs = 0;
  /// What the blocks of all slices multiply and add for a token; whether a walk back asks for the states of one
  /// forward.
  double flopsOfToken = 0;
  bool readsStates = false;
  /// Whether walks forward may keep checkpoints of every second chunk alone (stretto-thin-checkpoints).
  bool thinsCheckpoints = true;
  /// The registers that remain when tiles are set aside, where that was asked for.
  int64_t besideTilesAside = 0;

  /// All that this depends on, of one program. It may be divided into fewer slices.
  struct Shape {
    bool dividesGradients;
    int64_t panels, slices, tokens;
    auto operator<=>(const Shape &) const = default;
  };
};

class Candidates {
public:
  /// What a thread does: it looks at shapes as long as `next` has some, and keeps what it finds.
  using Work = std::function<void(Candidates &)>;
  explicit Candidates(Work work) : work(std::move(work)) {}
  /// Waits for threads to leave what they are looking at.
  ~Candidates();
  Candidates(const Candidates &) = delete;
  Candidates &operator=(const Candidates &) = delete;

  /// Threads are to look at these, in this order, as many at a time as there are processors beside the caller's.
  void expect(llvm::ArrayRef<Candidate::Shape> shapes);
  /// The next shape that nobody has looked at; nothing once the search is over.
  std::optional<Candidate::Shape> next();
  void keep(const Candidate::Shape &shape, Candidate candidate);
  /// Whether nobody asks for what is still being looked at.
  bool areOver() const { return isOver.load(std::memory_order_relaxed); }

  /// The candidate of a shape, which `look` finds if nobody else does.
  Candidate find(const Candidate::Shape &shape, llvm::function_ref<Candidate()> look);
  /// That, if it was found already.
  std::optional<Candidate> known(const Candidate::Shape &shape);

private:
  Work work;
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> isOver = false;
  std::deque<Candidate::Shape> expected;
  std::map<Candidate::Shape, std::optional<Candidate>> candidates; // nothing yet: somebody is looking at it
  std::vector<std::thread> threads;
};

} // namespace stretto

#endif // STRETTO_RUNTIME_CANDIDATES_H
