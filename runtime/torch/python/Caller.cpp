//===- Caller.cpp - Calls of operators from Python ------------------------===//
//
// The module stretto._calls. A Caller is called with all that a call from Python gives, and runs an operator of PyTorch
// on it. Which value of a call is which argument of which operator Python finds (stretto/calls.py), once for all calls
// that look alike: that is a plan. A call for which there is a plan costs a comparison, and its tensors go to PyTorch's
// dispatcher as they are, so that whatever is registered there or is in force meets them as ever: gradients, autocast,
// transformations, modes, a tracer, a profiler.
//
// What PyTorch decides before its dispatcher goes the long way, through Python: subclasses of tensors, and modes that
// override functions. So do values of types that no plan knows.
//
//===----------------------------------------------------------------------===//

// First, as it includes Python's header, which is to precede the system's.
#include <torch/csrc/autograd/python_variable.h>

#include <ATen/PythonTorchFunctionTLS.h>
#include <memory>
#include <string>
#include <string_view>
#include <structmember.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <utility>
#include <vector>

namespace {

/// An object of Python that is kept.
class Kept {
public:
  static Kept take(PyObject *object) { return Kept(object); }
  static Kept borrow(PyObject *object) { return Kept(Py_XNewRef(object)); }
  Kept() = default;
  Kept(Kept &&other) noexcept : object(std::exchange(other.object, nullptr)) {}
  Kept &operator=(Kept &&other) noexcept {
    std::swap(object, other.object);
    return *this;
  }
  ~Kept() { Py_XDECREF(object); }

  PyObject *get() const { return object; }
  PyObject *release() { return std::exchange(object, nullptr); }
  explicit operator bool() const { return object; }

private:
  explicit Kept(PyObject *object) : object(object) {}
  PyObject *object = nullptr;
};

/// What a function of Python returned; if it failed, Python knows what is wrong.
Kept checked(PyObject *object) {
  if (!object)
    throw python_error();
  return Kept::take(object);
}

/// Python's lock is given back for as long as this lives.
class WithoutLock {
public:
  WithoutLock() : state(PyEval_SaveThread()) {}
  WithoutLock(const WithoutLock &) = delete;
  ~WithoutLock() { PyEval_RestoreThread(state); }

private:
  PyThreadState *state;
};

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

/// What calls that look alike have at one place: some tensor, some state, or this constant.
struct Value {
  enum class Kind { Tensor, State, Constant } kind;
  Kept constant;
};

struct Plan {
  /// The values of a call: so many by position, and then those of keywords.
  size_t positional = 0;
  std::vector<Kept> keywords;
  std::vector<Value> values;

  /// An argument of the operator: a value by its number, several as a list, or a constant.
  struct Argument {
    std::vector<size_t> values = {};
    bool isList = false;
    c10::IValue constant = {};
  };
  torch::jit::Operation operation = nullptr;
  std::vector<Argument> arguments;
  /// How many results it has before its final state.
  size_t results = 0;
  /// The names of the entries of its state.
  Kept names;
  /// What is returned: the results alone, beside None or beside the final state; or beside the value with this number,
  /// which is a state that was updated. stretto/calls.py has the same numbers.
  enum : int64_t { ResultsAlone = -3, NoState = -2, FinalState = -1 };
  int64_t returned = ResultsAlone;
};

struct Caller {
  PyObject head; // as all objects of Python begin
  vectorcallfunc function;
  /// What finds a plan, what makes calls that have none, the type of states, and that of what the operator says.
  PyObject *find, *otherwise, *stateType, *errorType;
  /// As calls keep theirs, one that another thread replaces is still there.
  std::vector<std::shared_ptr<Plan>> *plans;
  size_t oldest;

  static constexpr size_t mostPlans = 16;
};

PyObject *namesOfState, *tensorsOfState; // the names of these attributes

/// How messages of the operators begin (runtime/torch/TorchOperator.h).
constexpr std::string_view ownPrefix = "stretto: ";

/// The tensors of a state, if it has these entries and its tensors are no subclasses; else null.
Kept tensorsIn(PyObject *state, PyObject *names) {
  Kept found = Kept::take(PyObject_GetAttr(state, namesOfState));
  Kept tensors = Kept::take(PyObject_GetAttr(state, tensorsOfState));
  bool isOrdinary = found && tensors && PyTuple_CheckExact(tensors.get()) &&
                    (found.get() == names || PyObject_RichCompareBool(found.get(), names, Py_EQ) == 1);
  for (Py_ssize_t i = 0; isOrdinary && i < PyTuple_GET_SIZE(tensors.get()); ++i)
    isOrdinary = THPVariable_CheckExact(PyTuple_GET_ITEM(tensors.get(), i));
  PyErr_Clear();
  return isOrdinary ? std::move(tensors) : Kept();
}

/// Whether a value is a constant, and no equal one of another type, as True is of 1.
bool isSame(PyObject *value, PyObject *constant) {
  if (value == constant)
    return true;
  if (Py_TYPE(value) != Py_TYPE(constant))
    return false;
  int isEqual = PyObject_RichCompareBool(value, constant, Py_EQ);
  PyErr_Clear();
  return isEqual == 1;
}

bool fits(const Caller &caller, const Plan &plan, PyObject *const *values, size_t positional, PyObject *keywords) {
  size_t named = keywords ? PyTuple_GET_SIZE(keywords) : 0;
  if (plan.positional != positional || plan.keywords.size() != named)
    return false;
  for (size_t i = 0; i < named; ++i) {
    PyObject *name = PyTuple_GET_ITEM(keywords, i), *expected = plan.keywords[i].get();
    if (name != expected && PyUnicode_Compare(name, expected) != 0)
      return false;
  }
  for (size_t i = 0; i < plan.values.size(); ++i) {
    const Value &expected = plan.values[i];
    switch (expected.kind) {
    case Value::Kind::Tensor:
      if (!THPVariable_CheckExact(values[i]))
        return false;
      break;
    case Value::Kind::State:
      if (reinterpret_cast<PyObject *>(Py_TYPE(values[i])) != caller.stateType)
        return false;
      break;
    case Value::Kind::Constant:
      if (!isSame(values[i], expected.constant.get()))
        return false;
      break;
    }
  }
  return true;
}

/// An object among the arguments that Python found for a plan: a number stands for the value that has it, a tuple of
/// numbers for a list of them.
Plan::Argument argumentOf(PyObject *object) {
  auto numberOf = [](PyObject *number) {
    size_t found = PyLong_AsSize_t(number);
    if (PyErr_Occurred())
      throw python_error();
    return found;
  };
  if (PyLong_CheckExact(object))
    return {.values = {numberOf(object)}};
  if (PyTuple_CheckExact(object)) {
    Plan::Argument argument = {.isList = true};
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      argument.values.push_back(numberOf(PyTuple_GET_ITEM(object, i)));
    return argument;
  }
  if (object == Py_None)
    return {};
  if (PyBool_Check(object))
    return {.constant = object == Py_True};
  if (PyFloat_CheckExact(object))
    return {.constant = PyFloat_AS_DOUBLE(object)};
  const char *text = PyUnicode_AsUTF8(object);
  if (!text)
    throw python_error();
  return {.constant = std::string(text)};
}

/// Has Python find the plan for a call; null where it has none.
std::shared_ptr<Plan> makePlan(const Caller &caller, PyObject *const *values, size_t positional, PyObject *keywords) {
  auto plan = std::make_shared<Plan>();
  size_t named = keywords ? PyTuple_GET_SIZE(keywords) : 0;
  plan->positional = positional;
  for (size_t i = 0; i < named; ++i)
    plan->keywords.push_back(Kept::borrow(PyTuple_GET_ITEM(keywords, i)));
  for (size_t i = 0; i < positional + named; ++i) {
    PyObject *value = values[i];
    if (THPVariable_CheckExact(value))
      plan->values.push_back({Value::Kind::Tensor, {}});
    else if (reinterpret_cast<PyObject *>(Py_TYPE(value)) == caller.stateType)
      plan->values.push_back({Value::Kind::State, {}});
    else if (value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) ||
             PyUnicode_CheckExact(value))
      plan->values.push_back({Value::Kind::Constant, Kept::borrow(value)});
    else
      return nullptr;
  }

  Kept found = checked(PyObject_Vectorcall(caller.find, values, positional, keywords));
  if (found.get() == Py_None)
    return nullptr;
  const char *name = nullptr;
  PyObject *arguments = nullptr, *names = nullptr;
  if (!PyArg_ParseTuple(found.get(), "sO!O!L", &name, &PyTuple_Type, &arguments, &PyTuple_Type, &names,
                        &plan->returned))
    throw python_error();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments); ++i)
    plan->arguments.push_back(argumentOf(PyTuple_GET_ITEM(arguments, i)));
  plan->names = Kept::borrow(names);
  // What torch.ops calls, too.
  std::shared_ptr<torch::jit::Operator> op = torch::jit::findOperatorFor(c10::OperatorName(name, ""));
  TORCH_CHECK(op, "internal: there is no operator ", name);
  plan->operation = op->getOperation();
  plan->results = op->schema().returns().size() - (plan->returned < 0 ? 1 : 0);
  return plan;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// The arguments of the operator; false where a state has other entries than those of the plan, or unusual tensors.
bool fillStack(const Plan &plan, PyObject *const *values, torch::jit::Stack &stack) {
  stack.reserve(plan.arguments.size());
  for (const Plan::Argument &argument : plan.arguments) {
    if (argument.isList) {
      std::vector<at::Tensor> tensors;
      tensors.reserve(argument.values.size());
      for (size_t value : argument.values)
        tensors.push_back(THPVariable_Unpack(values[value]));
      stack.emplace_back(std::move(tensors));
    } else if (argument.values.empty()) {
      stack.push_back(argument.constant);
    } else if (size_t value = argument.values.front(); plan.values[value].kind == Value::Kind::Tensor) {
      stack.emplace_back(THPVariable_Unpack(values[value]));
    } else {
      Kept held = tensorsIn(values[value], plan.names.get());
      if (!held)
        return false;
      std::vector<at::Tensor> tensors;
      tensors.reserve(PyTuple_GET_SIZE(held.get()));
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(held.get()); ++i)
        tensors.push_back(THPVariable_Unpack(PyTuple_GET_ITEM(held.get(), i)));
      stack.emplace_back(std::move(tensors));
    }
  }
  return true;
}

template <typename Tensors> Kept tupleOf(const Tensors &tensors, size_t count) {
  Kept tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; ++i) {
    const c10::IValue &tensor = tensors[i];
    PyTuple_SET_ITEM(tuple.get(), i, checked(THPVariable_Wrap(tensor.toTensor())).release());
  }
  return tuple;
}

/// What a call returns that left this stack.
Kept returnedBy(const Caller &caller, const Plan &plan, PyObject *const *values, torch::jit::Stack &stack) {
  Kept results = plan.results == 1 ? checked(THPVariable_Wrap(stack.front().toTensor())) : tupleOf(stack, plan.results);
  if (plan.returned == Plan::ResultsAlone)
    return results;
  Kept state;
  if (plan.returned == Plan::NoState) {
    state = Kept::borrow(Py_None);
  } else if (plan.returned == Plan::FinalState) {
    c10::ArrayRef<c10::IValue> entries = stack.back().toListRef();
    Kept tensors = tupleOf(entries, entries.size());
    state = checked(PyObject_CallFunctionObjArgs(caller.stateType, plan.names.get(), tensors.get(), nullptr));
  } else {
    state = Kept::borrow(values[plan.returned]);
  }
  return checked(PyTuple_Pack(2, results.get(), state.get()));
}

PyObject *callOtherwise(const Caller &caller, PyObject *const *values, size_t positional, PyObject *keywords) {
  return PyObject_Vectorcall(caller.otherwise, values, positional, keywords);
}

PyObject *call(PyObject *self, PyObject *const *values, size_t flagged, PyObject *keywords) {
  auto &caller = *reinterpret_cast<Caller *>(self);
  size_t positional = PyVectorcall_NARGS(flagged);
  HANDLE_TH_ERRORS
  if (at::impl::torch_function_mode_enabled())
    return callOtherwise(caller, values, positional, keywords);
  std::shared_ptr<Plan> plan;
  for (const std::shared_ptr<Plan> &known : *caller.plans)
    if (fits(caller, *known, values, positional, keywords)) {
      plan = known;
      break;
    }
  if (!plan) {
    plan = makePlan(caller, values, positional, keywords);
    if (!plan)
      return callOtherwise(caller, values, positional, keywords);
    if (caller.plans->size() < Caller::mostPlans)
      caller.plans->push_back(plan);
    else
      (*caller.plans)[caller.oldest++ % Caller::mostPlans] = plan;
  }
  torch::jit::Stack stack;
  if (!fillStack(*plan, values, stack))
    return callOtherwise(caller, values, positional, keywords);
  try {
    WithoutLock lock;
    plan->operation(stack);
  } catch (const c10::Error &error) {
    std::string_view message = error.what_without_backtrace();
    if (!message.starts_with(ownPrefix))
      throw;
    message.remove_prefix(ownPrefix.size());
    PyErr_SetString(caller.errorType, std::string(message).c_str());
    return nullptr;
  }
  return returnedBy(caller, *plan, values, stack).release();
  END_HANDLE_TH_ERRORS
}

//===----------------------------------------------------------------------===//
// The module
//===----------------------------------------------------------------------===//

PyObject *create(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  static const char *names[] = {"find", "otherwise", "state", "error", nullptr};
  PyObject *find = nullptr, *otherwise = nullptr, *state = nullptr, *error = nullptr;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOO:Caller", const_cast<char **>(names), &find, &otherwise,
                                   &state, &error))
    return nullptr;
  auto *caller = reinterpret_cast<Caller *>(type->tp_alloc(type, 0));
  if (!caller)
    return nullptr;
  caller->function = call;
  caller->find = Py_NewRef(find);
  caller->otherwise = Py_NewRef(otherwise);
  caller->stateType = Py_NewRef(state);
  caller->errorType = Py_NewRef(error);
  caller->plans = new std::vector<std::shared_ptr<Plan>>();
  return reinterpret_cast<PyObject *>(caller);
}

/// A variant has callers that refer to its methods.
int traverse(PyObject *self, visitproc visit, void *arg) {
  auto &caller = *reinterpret_cast<Caller *>(self);
  Py_VISIT(caller.find);
  Py_VISIT(caller.otherwise);
  Py_VISIT(caller.stateType);
  Py_VISIT(caller.errorType);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

int clear(PyObject *self) {
  auto &caller = *reinterpret_cast<Caller *>(self);
  Py_CLEAR(caller.find);
  Py_CLEAR(caller.otherwise);
  Py_CLEAR(caller.stateType);
  Py_CLEAR(caller.errorType);
  return 0;
}

void destroy(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  delete reinterpret_cast<Caller *>(self)->plans;
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Caller, function), READONLY, nullptr}, {}};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char *>("Caller(find, otherwise, state, error): calls operators by plans that `find` "
                                   "finds; `otherwise` makes the calls for which there is none.")},
    {Py_tp_new, reinterpret_cast<void *>(create)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void *>(traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void *>(destroy)},
    {Py_tp_members, members},
    {0, nullptr}};

PyType_Spec specification = {"stretto._calls.Caller", sizeof(Caller), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_calls",
                          "Calls of operators from Python.",
                          -1,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

} // namespace

// Python looks for this name. NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
PyMODINIT_FUNC PyInit__calls() {
  namesOfState = PyUnicode_InternFromString("names");
  tensorsOfState = PyUnicode_InternFromString("tensors");
  Kept module = Kept::take(PyModule_Create(&definition));
  Kept type = Kept::take(PyType_FromSpec(&specification));
  if (!module || !type || PyModule_AddObjectRef(module.get(), "Caller", type.get()) < 0)
    return nullptr;
  return module.release();
}
