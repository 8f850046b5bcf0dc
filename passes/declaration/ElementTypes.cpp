//===- ElementTypes.cpp - The types of a kernel in memory -----------------===//

#include "passes/declaration/ElementTypes.h"
#include "dialect/stretto/StrettoDialect.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace stretto;

static FailureOr<FloatType> readType(ModuleOp module, StringRef owner, StringRef word) {
  Builder builder(module.getContext());
  FloatType type = llvm::StringSwitch<FloatType>(word)
                       .Case("bf16", builder.getBF16Type())
                       .Case("f16", builder.getF16Type())
                       .Case("f32", builder.getF32Type())
                       .Case("f64", builder.getF64Type())
                       .Default(FloatType());
  if (!type)
    return module.emitError() << "[R4] the type of " << owner << " is '" << word << "', expected bf16, f16, f32 or f64";
  return type;
}

FailureOr<ElementTypes> ElementTypes::read(ModuleOp module, StringRef standard, ArrayRef<std::string> others) {
  ElementTypes types;
  FailureOr<FloatType> found = readType(module, "the inputs", standard);
  if (failed(found))
    return failure();
  types.standard = *found;
  types.compute = found->isF64() ? *found : FloatType(Float32Type::get(module.getContext()));
  llvm::StringSet<> names;
  for (VariantOp variant : module.getOps<VariantOp>())
    for (Attribute name : variant.getArgNames())
      names.insert(cast<StringAttr>(name).getValue());
  for (StringRef pair : others) {
    auto [name, word] = pair.split('=');
    FailureOr<FloatType> type = readType(module, ("'" + name + "'").str(), word);
    if (failed(type))
      return failure();
    if (type->getWidth() > types.compute.getWidth())
      return module.emitError() << "[R4] the type of '" << name << "' is " << *type
                                << ", expected one that arithmetic in " << types.compute << " holds";
    if (!names.contains(name))
      return module.emitError() << "[R4] a type is given for '" << name << "', which is no argument";
    types.others[name] = *type;
  }
  return types;
}
