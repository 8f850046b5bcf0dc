//===- Features.h - Calls of declarations that are split --------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_TORCH_FEATURES_H
#define STRETTO_RUNTIME_TORCH_FEATURES_H

#include "runtime/torch/Groups.h"

namespace stretto::torch_layer {

/// The operators of the feature maps of a declaration, and that of the rest, which takes what the former leave.
class TorchOperator::Parts {
public:
  /// Of calls with such a signature, of which there are parts, or of their gradients.
  Parts(const TorchOperator &whole, const StrettoSignature *signature, bool ofGradient);

  /// The same as of the whole, of arguments that were arranged, whose gradient is recorded of what is wanted.
  Outputs run(const Arguments &arguments, const Recorded &wanted) const;

  /// The groups of sequences and heads that a gradient is found of, one after the other; the bytes that are enough for
  /// it, and those that cotangents of features take of these while the gradient of the rest is found, and later.
  struct Division {
    Groups groups;
    int64_t enough, besideRest, besideFeatures;
  };
  /// Nothing where the gradient of the whole takes less memory.
  std::optional<Division> divide(const Arguments &arguments, const std::vector<bool> &wanted) const;
  std::vector<at::Tensor> gradient(const Arguments &arguments, const Division &division,
                                   const std::vector<bool> &wanted, const std::vector<OptionalTensor> &cotangents,
                                   const Kept &kept) const;

  /// Says something of a call of each part, in JSON: that of the rest, which has those of the features in it. Of a
  /// gradient, which is divided and that of a group, `wanted` are the names of what it is of, none for all. The rest
  /// has features that were found, or memory for them, whose bytes are said, too.
  using Names = std::vector<std::string>;
  using Visit = std::function<std::string(const TorchOperator &part, const Arguments &arguments, const Names &wanted)>;
  std::string forEach(const Arguments &arguments, const Division *division, const Names &wanted, bool findsFeatures,
                      const Visit &visit) const;

private:
  using Tensors = std::vector<at::Tensor>;
  /// An operator, and where its inputs, options and entries of the state lie among those of the whole. Features lie
  /// behind all inputs of it.
  struct Part {
    Part(const Parts &parts, size_t index);
    TorchOperator op;
    std::vector<size_t> inputs, options;
    mutable std::optional<std::vector<size_t>> entries;
  };
  /// What of a part a gradient is of: a word for each input and entry, and where in the whole those lie that are
  /// wanted.
  struct Wanted {
    std::vector<bool> flags;
    std::vector<size_t> places;
  };

  bool isFeature(size_t place) const { return place >= whole.inputs.size(); }
  size_t numberOf(size_t feature) const { return feature - whole.inputs.size(); }
  const std::vector<size_t> &entriesOf(const Part &part, const Arguments &own) const;
  Arguments argumentsOf(const Part &part, const Arguments &arguments, const Tensors &found,
                        const Division *division = nullptr) const;
  Wanted wantedOf(const Part &part, const Arguments &own, const std::function<bool(size_t place)> &isWanted) const;
  /// Memory for the features of a part.
  static Tensors emptyFeatures(const Part &part, const Arguments &own);
  /// A call of a part whose kernels are to be compiled, or of its gradient, too.
  struct Prepared {
    const TorchOperator *op;
    Arguments arguments;
    bool isRecorded;
  };
  /// The gradient that a call is recorded for: of which parts, and how it is divided, where it is one of parts.
  struct Back {
    const Parts *parts = nullptr;
    std::optional<Division> division;
    /// Whether the call keeps its features for it, and states of the rest; and whether these are features as its own
    /// parts leave them, or it takes the parts of the gradient.
    bool keeps = false, takesOwn = true;
    bool isDivided() const { return division && division->groups.count > 1; }
  };
  Back backOf(const Arguments &arguments, const Recorded &wanted) const;
  /// Whether features are of the same shape and type as those that these parts leave.
  bool hasFeaturesLike(const Parts &others, const Arguments &arguments) const;
  /// Whether each feature is made of something whose gradient is wanted.
  std::vector<bool> areFeaturesWanted(const Arguments &arguments, const Recorded &wanted) const;
  void addFeatureCalls(std::vector<Prepared> &calls, const Arguments &arguments, const Back *back) const;
  void addRestCall(std::vector<Prepared> &calls, const Arguments &arguments, const Recorded &wanted,
                   const Back *back) const;
  /// Has the kernels of all parts compiled side by side, and those of their gradients where these will be asked for.
  void compile(const Arguments &arguments, const Recorded &wanted, const Back *back) const;

  /// The axis of heads of an input, or of an entry of the state behind these.
  int64_t headAxis(size_t place) const;
  bool isOfSequences(size_t place) const { return place >= whole.inputs.size() || !whole.inputs[place].isParameter; }
  /// What the cotangents of a part's results take, of those that heads have for themselves and that all share.
  struct Bytes {
    int64_t ofHeads = 0, shared = 0;
  };
  Bytes cotangentsOf(const Part &part, const Arguments &arguments) const;
  Group firstOf(const Division &division, const Arguments &arguments) const;
  Arguments argumentsOf(const Group &group, const Arguments &arguments) const;
  /// The gradient of a call that is not divided further.
  Tensors gradientOf(const Arguments &arguments, const Division &division, const std::vector<bool> &wanted,
                     const std::vector<OptionalTensor> &cotangents, const std::vector<OptionalTensor> &places,
                     const Kept &kept) const;

  const TorchOperator &whole;
  const StrettoSignature *signature;
  bool ofGradient;
  std::vector<std::string> entryNames; // of the whole
  std::vector<bool> areTails;          // these entries
  std::vector<std::unique_ptr<const Part>> features;
  std::unique_ptr<const Part> rest;
  mutable std::mutex mutex;
  mutable std::atomic<bool> isCompiled = false, isCompiledWithGradient = false;
  mutable std::optional<bool> areFeaturesAlike; // those of the gradient's parts
};

} // namespace stretto::torch_layer

#endif // STRETTO_RUNTIME_TORCH_FEATURES_H
