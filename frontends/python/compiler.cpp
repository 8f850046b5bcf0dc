//===- compiler.cpp - The module stretto._compiler ------------------------===//
//
// The C interface of libstretto.so for Python: handles become objects, messages become exceptions, arrays are numpy's.
// It needs stretto.h and libstretto.so only, so it can also be built by hand:
//
//   g++ -std=c++20 -O1 -shared -fPIC -fvisibility=hidden $(python -m pybind11 --includes) -I. \
//     frontends/python/compiler.cpp -o build/dev/lib/_compiler$(python3-config --extension-suffix) \
//     -Lbuild/dev/lib -lstretto -Wl,-rpath,'$ORIGIN'
//
//===----------------------------------------------------------------------===//

#include "frontends/c/stretto.h"
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace {

/// What the compiler reports. Python sees `stretto.Error`.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string taken(char *text) {
  std::string copy = text ? text : "";
  strettoStringDestroy(text);
  return copy;
}

/// Calls a function whose last argument is a message, and throws that message where the function fails.
template <typename Function, typename... Arguments> auto checked(Function function, Arguments... arguments) {
  char *error = nullptr;
  auto result = function(arguments..., &error);
  if constexpr (std::is_pointer_v<decltype(result)>) {
    if (!result)
      throw Failure(taken(error));
  } else if (result < 0) {
    throw Failure(taken(error));
  }
  return result;
}

using Text = std::map<std::string, std::string>;
using Location = std::tuple<std::string, unsigned, unsigned>;

/// Settings that point into a map, which has to outlive them.
class Settings {
public:
  explicit Settings(const Text &text) {
    for (const auto &[name, value] : text)
      items.push_back({name.c_str(), value.c_str()});
  }
  operator StrettoSettings() const { return {items.data(), items.size()}; }

private:
  std::vector<StrettoSetting> items;
};

StrettoLocation locationOf(const Location &at) { return {std::get<0>(at).c_str(), std::get<1>(at), std::get<2>(at)}; }

/// One context serves the process; Python's lock keeps its users apart.
StrettoContext *context() {
  static StrettoContext *context = strettoContextCreate();
  return context;
}

//===----------------------------------------------------------------------===//
// Arrays
//===----------------------------------------------------------------------===//

using Numbers = py::array_t<double, py::array::c_style | py::array::forcecast>;
using Integers = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;
using NamedNumbers = std::map<std::string, Numbers>;

class Arrays {
public:
  explicit Arrays(const NamedNumbers &arrays) {
    for (const auto &[name, array] : arrays)
      shapes.emplace_back(array.shape(), array.shape() + array.ndim());
    auto shape = shapes.begin();
    for (const auto &[name, array] : arrays)
      items.push_back({name.c_str(), (shape++)->data(), static_cast<size_t>(array.ndim()), array.data()});
  }
  operator StrettoArrays() const { return {items.data(), items.size()}; }

private:
  std::vector<std::vector<int64_t>> shapes;
  std::vector<StrettoArray> items;
};

//===----------------------------------------------------------------------===//
// Handles
//===----------------------------------------------------------------------===//

class Module {
public:
  explicit Module(StrettoModule *module) : handle(module, strettoModuleDestroy) {}

  static Module parse(const std::string &text, const std::string &name) {
    return Module(checked(strettoModuleParse, context(), text.data(), text.size(), name.c_str()));
  }
  static Module load(const std::string &path) { return Module(checked(strettoModuleLoad, context(), path.c_str())); }

  std::string print() const { return taken(strettoModulePrint(handle.get())); }
  std::string signatures() const { return taken(strettoModuleSignatures(handle.get())); }
  std::string state() const { return taken(checked(strettoModuleState, handle.get())); }
  Module variant(const std::optional<std::string> &name) const {
    return Module(checked(strettoModuleVariant, handle.get(), name ? name->c_str() : nullptr));
  }
  Module specialize(const Text &dims, const Text &heads, const Text &options,
                    const std::vector<std::string> &absent) const {
    std::vector<const char *> names;
    names.reserve(absent.size());
    for (const std::string &name : absent)
      names.push_back(name.c_str());
    Settings ofDims(dims), ofHeads(heads), ofOptions(options);
    StrettoSpecialization specialization = {ofDims, ofHeads, ofOptions, names.data(), names.size()};
    return Module(checked(strettoModuleSpecialize, handle.get(), &specialization));
  }
  std::string lower(const std::string &stage, const std::string &target, const std::string &element,
                    const std::string &part, const std::string &keeps,
                    const std::optional<std::array<int64_t, 8>> &form) const {
    StrettoForm fixed = {};
    if (form)
      fixed = {(*form)[0], (*form)[1], (*form)[2], (*form)[3], (*form)[4], (*form)[5], (*form)[6], (*form)[7]};
    StrettoPart asked = part == "step" ? STRETTO_STEP : part == "segments" ? STRETTO_SEGMENTS : STRETTO_RESULTS;
    StrettoKeeps kept = keeps == "chunks"     ? STRETTO_KEEPS_CHUNKS
                        : keeps == "segments" ? STRETTO_KEEPS_SEGMENTS
                                              : STRETTO_KEEPS_NOTHING;
    return taken(checked(strettoModuleLower, handle.get(), stage.c_str(), target.c_str(), element.c_str(), asked, kept,
                         form ? &fixed : nullptr));
  }
  Module run(const std::string &pipeline) const {
    return Module(checked(strettoModuleRun, handle.get(), pipeline.c_str()));
  }

  /// The results and the entries of the final state, by name.
  std::pair<std::vector<Numbers>, py::dict> interpret(const NamedNumbers &arguments, const Text &options,
                                                      const NamedNumbers &initialState,
                                                      const std::optional<Integers> &sequenceOffsets, bool finalState,
                                                      const std::vector<std::string> &finalEntries) const {
    Arrays argumentArrays(arguments), stateArrays(initialState);
    std::vector<const char *> entries;
    entries.reserve(finalEntries.size());
    for (const std::string &entry : finalEntries)
      entries.push_back(entry.c_str());
    Settings optionSettings(options);
    StrettoCall call = {argumentArrays,
                        stateArrays,
                        optionSettings,
                        sequenceOffsets ? sequenceOffsets->data() : nullptr,
                        sequenceOffsets ? static_cast<size_t>(sequenceOffsets->size()) : 0,
                        finalState,
                        entries.data(),
                        entries.size()};
    std::unique_ptr<StrettoOutcome, decltype(&strettoOutcomeDestroy)> outcome(
        checked(strettoModuleInterpret, handle.get(), &call), strettoOutcomeDestroy);
    std::vector<Numbers> results;
    py::dict state;
    for (size_t i = 0; i < strettoOutcomeCount(outcome.get()); ++i) {
      StrettoArray array = strettoOutcomeArray(outcome.get(), i);
      Numbers copy(std::vector<py::ssize_t>(array.shape, array.shape + array.rank), array.values);
      if (*array.name)
        state[array.name] = copy;
      else
        results.push_back(copy);
    }
    return {results, state};
  }

private:
  std::shared_ptr<StrettoModule> handle;
};

class Builder {
public:
  Builder(const std::string &name, const std::string &summary, const Location &at)
      : handle(strettoBuilderCreate(context(), name.c_str(), summary.c_str(), locationOf(at)), strettoBuilderDestroy) {}

  std::vector<uint32_t> apply(const std::string &operation, const std::vector<uint32_t> &operands, const Text &settings,
                              const Location &at) {
    std::vector<uint32_t> results(4);
    results.resize(checked(strettoBuilderApply, handle.get(), operation.c_str(), operands.data(), operands.size(),
                           StrettoSettings(Settings(settings)), locationOf(at), results.data(), results.size()));
    return results;
  }
  std::string size(uint32_t value, const Location &at) {
    return taken(checked(strettoBuilderSize, handle.get(), value, locationOf(at)));
  }
  Module finish(const std::vector<uint32_t> &results, const Location &at) {
    return Module(checked(strettoBuilderFinish, handle.get(), results.data(), results.size(), locationOf(at)));
  }

private:
  std::unique_ptr<StrettoBuilder, decltype(&strettoBuilderDestroy)> handle;
};

} // namespace

PYBIND11_MODULE(_compiler, module) {
  module.doc() = "The C interface of libstretto.so.";
  py::register_exception<Failure>(module, "Error");

  py::class_<Module>(module, "Module")
      .def_static("parse", &Module::parse, py::arg("text"), py::arg("name"))
      .def_static("load", &Module::load, py::arg("path"))
      .def("__str__", &Module::print)
      .def("signatures", &Module::signatures)
      .def("state", &Module::state)
      .def("variant", &Module::variant, py::arg("name") = std::nullopt)
      .def("specialize", &Module::specialize, py::kw_only(), py::arg("dims") = Text(), py::arg("heads") = Text(),
           py::arg("options") = Text(), py::arg("absent") = std::vector<std::string>())
      .def("lower", &Module::lower, py::arg("stage"), py::arg("target"), py::arg("element"), py::arg("part"),
           py::arg("keeps") = "nothing", py::arg("form") = std::nullopt)
      .def("run", &Module::run, py::arg("pipeline"))
      .def("interpret", &Module::interpret, py::arg("arguments"), py::kw_only(), py::arg("options") = Text(),
           py::arg("initial_state") = NamedNumbers(), py::arg("sequence_offsets") = std::nullopt,
           py::arg("final_state") = false, py::arg("final_entries") = std::vector<std::string>());

  py::class_<Builder>(module, "Builder")
      .def(py::init<const std::string &, const std::string &, const Location &>(), py::arg("name"), py::arg("summary"),
           py::arg("location"))
      .def("apply", &Builder::apply, py::arg("operation"), py::arg("operands"), py::arg("settings"),
           py::arg("location"))
      .def("size", &Builder::size, py::arg("value"), py::arg("location"))
      .def("finish", &Builder::finish, py::arg("results"), py::arg("location"));
}
