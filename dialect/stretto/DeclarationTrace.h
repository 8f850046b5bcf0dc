//===- DeclarationTrace.h - One run over a declaration's requests -*- C++ -*-===//
//
// The state of a DeclarationBuilder between two requests (`DeclarationTrace`) and one request while it is carried out
// (`DeclarationCall`), with the pieces that operations are made of: operands as real numbers, rows, states or
// parameters, repeated to the axis and head set that an operation needs.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_DIALECT_STRETTO_DECLARATIONTRACE_H
#define STRETTO_DIALECT_STRETTO_DECLARATIONTRACE_H

#include "dialect/stretto/DeclarationBuilder.h"
#include "dialect/stretto/StrettoDialect.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseMap.h"
#include <variant>

namespace stretto {

/// The name of an option that is a number.
struct OptionName {
  std::string name;
};

/// What a handle stands for. Numbers, options and sizes have no operation until they are used: they become a real
/// number or a row, as the operation that meets them requires.
using TracedValue = std::variant<double, OptionName, Extent, mlir::Value>;

class DeclarationTrace {
public:
  /// `stateHeads` are the head sets of the states in the order of their declaration; those not named have "1".
  DeclarationTrace(llvm::StringRef name, llvm::StringRef summary, mlir::Location location,
                   llvm::SmallVector<std::string> stateHeads);

  mlir::LogicalResult finish(llvm::ArrayRef<Handle> results, mlir::Location location);

  /// Creates the state value that is declared next. Without a name it is "S", and further ones "S1", "S2".
  mlir::Value declareState(std::optional<llvm::StringRef> name, llvm::StringRef first, llvm::StringRef second,
                           mlir::Location location);
  /// Notes that rows change a state. Fails without a message where that needs a finer head set than this run gives it.
  mlir::LogicalResult needHeads(mlir::Value state, mlir::ValueRange rows);
  /// Notes that an operation made a state of another one.
  void continueState(mlir::Value before, mlir::Value after) { stateOf[after] = stateOf.lookup(before); }
  /// The head sets of the states that the changes so far need.
  const llvm::SmallVector<std::string> &neededHeads() const { return needed; }
  bool headsAreFound() const { return needed == assumed; }

  Handle add(TracedValue value);
  /// Brings the variant's signature up to date with `argumentNames` and its relatives.
  void updateSignature(mlir::TypeRange results = {});

  mlir::OwningOpRef<mlir::ModuleOp> module;
  VariantOp variant;
  mlir::OpBuilder builder;
  std::vector<TracedValue> values;
  /// Tables and look-backs whose bodies are open.
  llvm::SmallVector<mlir::Operation *> bodies;
  llvm::SmallVector<mlir::Attribute> argumentNames, argumentAttributes;
  mlir::NamedAttrList options, axes;
  /// Names that `axis` bound to another size.
  std::map<std::string, Extent> synonyms;

private:
  llvm::SmallVector<std::string> assumed, needed;
  llvm::DenseMap<mlir::Value, unsigned> stateOf;
};

/// The axis and the head set that rows are brought to before they meet.
struct Shape {
  std::string axis, heads;
};

/// A request while it is carried out. Accessors of operands and settings report what does not fit.
class DeclarationCall {
public:
  DeclarationCall(DeclarationTrace &trace, const DeclarationRequest &request);

  /// Fails where an operand does not exist or is out of scope.
  mlir::LogicalResult checkOperands() const;
  mlir::InFlightDiagnostic error() const;
  /// An operand in words.
  std::string describe(Handle operand) const;

  size_t count() const { return request.operands.size(); }
  Handle operand(unsigned index) const { return request.operands[index]; }
  template <typename T> const T *get(Handle operand) const { return std::get_if<T>(&trace.values[operand]); }
  /// The value of an operand, null where it stands for a number, an option or a size.
  mlir::Value value(Handle operand) const;
  bool isReal(Handle operand) const;

  std::optional<llvm::StringRef> setting(llvm::StringRef name) const;
  bool flag(llvm::StringRef name) const { return setting(name).has_value(); }
  /// A setting that has to be there.
  mlir::FailureOr<llvm::StringRef> text(llvm::StringRef name) const;
  mlir::FailureOr<int64_t> integer(llvm::StringRef name) const;
  /// A setting that is a size; names bound to another size are replaced by it.
  mlir::FailureOr<Extent> size(llvm::StringRef name) const;
  mlir::FailureOr<Extent> parseSize(llvm::StringRef text) const;
  /// A setting that is an axis, in normal form; empty where the setting is.
  mlir::FailureOr<std::string> axis(llvm::StringRef name) const;
  mlir::FailureOr<std::string> heads() const;
  /// A setting that is one of the words of an enumeration.
  template <typename Enum>
  mlir::FailureOr<Enum> word(llvm::StringRef name, std::optional<Enum> (*symbolize)(llvm::StringRef)) const {
    mlir::FailureOr<llvm::StringRef> spelling = text(name);
    if (failed(spelling))
      return mlir::failure();
    if (std::optional<Enum> value = symbolize(*spelling))
      return *value;
    return error() << "'" << *spelling << "' is unknown as '" << name << "'";
  }

  /// An operand as a real number, or as a condition on real numbers.
  mlir::Value real(Handle operand);
  /// An operand as a row of its own shape, or of that shape. A real number is a number for all heads.
  mlir::FailureOr<mlir::Value> row(Handle operand);
  mlir::FailureOr<mlir::Value> row(Handle operand, const Shape &shape);
  /// An operand as a row on an axis with its own head set; another axis than that is left for the verifier to name.
  mlir::FailureOr<mlir::Value> rowOn(Handle operand, llvm::StringRef axis);
  mlir::FailureOr<mlir::TypedValue<StateType>> state(Handle operand);
  mlir::FailureOr<mlir::Value> parameter(Handle operand);
  /// An operand as a number of the token that is the same for all heads.
  mlir::FailureOr<mlir::Value> time(Handle operand);

  /// The axis and head set of one operand; a real number is a number for all heads.
  mlir::FailureOr<Shape> shapeOf(Handle operand);
  /// The axis and head set at which operands meet; nothing where all are real numbers.
  mlir::FailureOr<std::optional<Shape>> meet(llvm::ArrayRef<Handle> operands);
  /// Operands as rows of the shape at which they meet.
  mlir::FailureOr<llvm::SmallVector<mlir::Value>> rows(llvm::ArrayRef<Handle> operands);
  /// Operands brought to where they meet: real numbers where all are, rows otherwise.
  mlir::FailureOr<llvm::SmallVector<mlir::Value>> alike(llvm::ArrayRef<Handle> operands);
  /// Operands as rows of one head set, each on its own axis.
  mlir::FailureOr<llvm::SmallVector<mlir::Value>> sameHeads(llvm::ArrayRef<Handle> operands);

  /// The type of a row of that size; a row of size one is a number.
  mlir::RankedTensorType rowOfSize(const Extent &size, llvm::StringRef heads);

  /// Verifies an operation just made, and adds its results.
  mlir::FailureOr<Handles> results(mlir::Operation *op);
  template <typename Op, typename... Arguments> mlir::FailureOr<Handles> make(Arguments &&...arguments) {
    return results(Op::create(builder, request.location, std::forward<Arguments>(arguments)...));
  }
  Handles one(TracedValue value) { return {trace.add(std::move(value))}; }

  DeclarationTrace &trace;
  const DeclarationRequest &request;
  mlir::OpBuilder &builder;
  mlir::Location location;
};

/// A number in as few digits as tell it from others.
std::string spellNumber(double number);

/// The requests that make the signature (DeclarationSignature.cpp).
mlir::FailureOr<Handles> declareArgument(DeclarationCall &call);
mlir::FailureOr<Handles> declareOption(DeclarationCall &call);
mlir::FailureOr<Handles> declareAxis(DeclarationCall &call);

/// Carries out a request by the operation that it names.
mlir::FailureOr<Handles> carryOutByName(DeclarationCall &call);

} // namespace stretto

#endif // STRETTO_DIALECT_STRETTO_DECLARATIONTRACE_H
