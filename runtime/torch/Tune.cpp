//===- Tune.cpp - Measuring calls for the tuner ---------------------------===//

#include "runtime/torch/Call.h"
#include "runtime/torch/Features.h"
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <chrono>

using namespace stretto::torch_layer;

namespace {

/// The clock of a device. On a GPU each call is timed behind writes of a buffer twice as large as the cache that its
/// multiprocessors share, as many as hide what the host takes to launch the call.
class DeviceClock {
public:
  DeviceClock(at::Device device, int64_t cacheBytes) : device(device) {
    if (!device.is_cuda())
      return;
    buffer = at::empty({2 * cacheBytes}, at::TensorOptions(device).dtype(at::kByte));
    buffer.zero_();
    ofWrite = onDevice([&] { buffer.zero_(); });
  }

  /// Seconds of a call.
  template <typename Function> double time(Function call) {
    if (!device.is_cuda())
      return onHost(call);
    for (int i = 0, writes = 1 + static_cast<int>(1.5 * ofHost / ofWrite); i < writes; ++i)
      buffer.zero_();
    return onDevice([&] { ofHost = onHost(call); });
  }

private:
  template <typename Function> static double onHost(Function call) {
    auto start = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  template <typename Function> double onDevice(Function call) const {
    c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    c10::Event end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    begin.record(stream);
    call();
    end.record(stream);
    end.synchronize();
    return 1e-3 * begin.elapsedTime(end);
  }

  at::Device device;
  at::Tensor buffer;
  double ofWrite = 0, ofHost = 0;
};

/// The fastest of a few.
template <typename Function> double fastestOf(DeviceClock &clock, Function call) {
  double fastest = clock.time(call);
  for (int i = 0; i < 4; ++i)
    fastest = std::min(fastest, clock.time(call));
  return fastest;
}

/// Bytes per second, read plus written, of a copy of as many bytes as fill no cache.
double copyRate(DeviceClock &clock, at::Device device) {
  const int64_t bytes = int64_t(1) << (device.is_cuda() ? 30 : 26);
  at::Tensor source = at::ones({bytes}, at::TensorOptions(device).dtype(at::kByte)), target = at::empty_like(source);
  return 2 * static_cast<double>(bytes) / fastestOf(clock, [&] { target.copy_(source); });
}

/// Operations per second of a product of matrices.
double matmulRate(DeviceClock &clock, at::Device device, at::ScalarType type) {
  const int64_t size = device.is_cuda() ? 8192 : 1024;
  at::Tensor matrix = at::randn({size, size}, at::TensorOptions(device).dtype(at::kFloat)).to(type);
  double side = static_cast<double>(size);
  return 2 * side * side * side / fastestOf(clock, [&] { at::mm(matrix, matrix); });
}

} // namespace

std::string TorchOperator::tune(Arguments arguments, const c10::Dict<std::string, std::string> &given,
                                const std::optional<std::vector<std::string>> &wanted, double seconds) const {
  at::AutoDispatchBelowAutograd guardOfGradients;
  checkMemory(arguments);
  const at::Tensor &row = firstRow(arguments);
  at::Device device = row.device();
  TORCH_CHECK(!device.is_meta(), "stretto: ", variant(), ": [R5] a call on tensors without memory cannot be measured");
  c10::OptionalDeviceGuard guard;
  if (row.is_cuda())
    guard.reset_device(device);
  setOptions(arguments, given);
  arrange(arguments);
  StrettoSignature *signature = Call(*this, arguments).signature;
  if (const Parts *parts = partsOf(arguments, signature, wanted.has_value())) {
    std::optional<Parts::Division> division;
    if (wanted)
      division = parts->divide(arguments, wantedOf(arguments, *wanted, signature));
    auto tunePart = [&](const TorchOperator &part, Arguments own, const std::vector<std::string> &ofPart) {
      own.options.clear();
      std::optional<std::vector<std::string>> names;
      if (wanted)
        names = ofPart;
      return part.tune(std::move(own), given, names, seconds / 2);
    };
    if (!wanted || division)
      return parts->forEach(arguments, division ? &*division : nullptr, wanted.value_or(std::vector<std::string>()),
                            /*findsFeatures=*/true, tunePart);
  }

  std::vector<bool> flags;
  std::vector<OptionalTensor> cotangents;
  Kept kept;
  std::optional<DeviceClock> clock;
  auto call = [&](const StrettoForm &form) {
    Arguments inForm = arguments;
    inForm.form = form;
    return clock->time([&] { wanted ? void(gradient(inForm, flags, cotangents, kept)) : void(run(inForm)); });
  };
  auto prepare = [&](StrettoSignature *signature) {
    clock.emplace(device, strettoSignatureCacheBytes(signature));
    StrettoTuning tuning = {};
    tuning.context = &call;
    tuning.trial = [](void *context, const StrettoForm *form, char **error) {
      try {
        return (*static_cast<decltype(call) *>(context))(*form);
      } catch (const std::exception &problem) {
        *error = strettoStringCopy(problem.what());
        return -1.0;
      }
    };
    tuning.bytesPerSecond = copyRate(*clock, device);
    tuning.flopsPerSecond = matmulRate(*clock, device, row.scalar_type());
    tuning.seconds = seconds;
    if (wanted) {
      flags = wantedOf(arguments, *wanted, signature);
      flags.resize(inputs.size() + arguments.initialState.size());
      Arguments recorded = arguments;
      recorded.savesRows = maySaveRows();
      Outputs outputs = run(recorded);
      for (const at::Tensor &result : outputs.results)
        cotangents.emplace_back(at::randn_like(result));
      kept.saved = outputs.saved;
      for (size_t result : outputs.taken)
        kept.saved.push_back(outputs.results[result]);
    }
    return tuning;
  };
  return runTuner(arguments, wanted ? &flags : nullptr, prepare);
}
