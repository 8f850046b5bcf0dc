//===- Groups.cpp - Some sequences and heads of a call --------------------===//

#include "runtime/torch/Groups.h"
#include <algorithm>

using namespace stretto::torch_layer;

Groups Groups::of(int64_t wanted, int64_t batch, int64_t heads) {
  Groups groups;
  groups.sequences = std::max<int64_t>(batch / wanted, 1);
  int64_t ofSequences = (batch + groups.sequences - 1) / groups.sequences;
  while (groups.ofHeads < heads && (ofSequences * groups.ofHeads < wanted || heads % groups.ofHeads))
    ++groups.ofHeads;
  groups.count = ofSequences * groups.ofHeads;
  return groups;
}

Group::Group(const Groups &groups, int64_t index, int64_t batch)
    : firstSequence(index / groups.ofHeads * groups.sequences),
      sequences(std::min(groups.sequences, batch - firstSequence)), batch(batch), part(index % groups.ofHeads),
      parts(groups.ofHeads) {}

bool Group::isAlone(const at::Tensor &tensor, bool ofSequences, int64_t headAxis) const {
  bool isOfHeads = headAxis < tensor.dim() && tensor.size(headAxis) > 1;
  return (parts == 1 || isOfHeads) && (sequences == batch || ofSequences);
}

at::Tensor Group::of(const at::Tensor &tensor, bool ofSequences, int64_t headAxis) const {
  at::Tensor some = tensor;
  if (ofSequences && sequences < batch)
    some = some.narrow(0, firstSequence, sequences);
  if (parts > 1 && headAxis < tensor.dim() && tensor.size(headAxis) > 1) {
    int64_t heads = tensor.size(headAxis) / parts;
    some = some.narrow(headAxis, part * heads, heads);
  }
  // Views that autograd does not see ask for what the whole does.
  return some.is_same(tensor) ? tensor : some.set_requires_grad(tensor.requires_grad());
}
