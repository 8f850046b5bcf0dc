//===- Candidates.cpp - The forms among which one is chosen ---------------===//

#include "runtime/Candidates.h"
#include "llvm/ADT/STLExtras.h"

using namespace stretto;

Candidates::~Candidates() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    isOver = true;
  }
  changed.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

void Candidates::expect(llvm::ArrayRef<Candidate::Shape> shapes) {
  size_t others = std::max(std::thread::hardware_concurrency(), 1u) - 1;
  std::lock_guard<std::mutex> lock(mutex);
  llvm::append_range(expected, shapes);
  while (threads.size() < std::min(others, expected.size()))
    threads.emplace_back([this] { work(*this); });
  changed.notify_all();
}

std::optional<Candidate::Shape> Candidates::next() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return isOver || !expected.empty(); });
    if (isOver)
      return std::nullopt;
    Candidate::Shape shape = expected.front();
    expected.pop_front();
    if (candidates.try_emplace(shape).second)
      return shape;
  }
}

void Candidates::keep(const Candidate::Shape &shape, Candidate candidate) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    candidates[shape] = std::move(candidate);
  }
  changed.notify_all();
}

Candidate Candidates::find(const Candidate::Shape &shape, llvm::function_ref<Candidate()> look) {
  std::unique_lock<std::mutex> lock(mutex);
  auto [found, isNew] = candidates.try_emplace(shape);
  if (isNew) {
    lock.unlock();
    keep(shape, look());
    lock.lock();
  }
  // What a map holds stays where it is.
  std::optional<Candidate> &candidate = found->second;
  changed.wait(lock, [&] { return candidate.has_value(); });
  return *candidate;
}

std::optional<Candidate> Candidates::known(const Candidate::Shape &shape) {
  std::lock_guard<std::mutex> lock(mutex);
  auto found = candidates.find(shape);
  return found == candidates.end() ? std::nullopt : found->second;
}
