//===- Turns.h - Roles of a block take turns --------------------*- C++ -*-===//
#ifndef STRETTO_TEST_SIMULATOR_TURNS_H
#define STRETTO_TEST_SIMULATOR_TURNS_H

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace stretto::simulator {

/// Each role of a block is executed by a thread of the host, one of them at a time: it goes on until it waits for
/// something that is not there yet.
class Turns {
public:
  explicit Turns(int roles) : isDone(roles, false) {}

  /// Executes `role` of each, from the first on.
  template <typename Function> void run(Function role) {
    std::vector<std::thread> threads;
    for (int number = 1; number < static_cast<int>(isDone.size()); ++number)
      threads.emplace_back([this, number, role] {
        await(number);
        role(number);
        finish(number);
      });
    role(0);
    finish(0);
    for (std::thread &thread : threads)
      thread.join();
  }

  /// Whoever changes what others may wait for says so.
  void noteChange() { ++changes; }
  uint64_t changesSeen() const { return changes; }

  /// Lets the others go on until they wait; whether there is any.
  bool yield(int role) {
    int other = next(role);
    if (other == role)
      return false;
    hand(other);
    await(role);
    return true;
  }

private:
  int next(int role) const {
    int count = static_cast<int>(isDone.size());
    for (int step = 1; step < count; ++step)
      if (int other = (role + step) % count; !isDone[other])
        return other;
    return role;
  }

  void finish(int role) {
    ++changes;
    isDone[role] = true;
    hand(next(role));
  }

  void hand(int to) {
    std::lock_guard<std::mutex> lock(mutex);
    current = to;
    changed.notify_all();
  }

  void await(int role) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return current == role; });
  }

  std::mutex mutex;
  std::condition_variable changed;
  int current = 0;
  uint64_t changes = 0;
  std::vector<char> isDone;
};

} // namespace stretto::simulator

#endif // STRETTO_TEST_SIMULATOR_TURNS_H
