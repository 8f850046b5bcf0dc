//===- Chip.cpp - What a GPU offers a kernel ------------------------------===//

#include "dialect/kernel/Chip.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace stretto::kernel;

static constexpr int64_t kilobyte = 1024;
static constexpr Chip chips[] = {
    {"sm_80", "+ptx80", 163 * kilobyte},
    {"sm_86", "+ptx80", 99 * kilobyte},
    {"sm_87", "+ptx80", 163 * kilobyte},
    {"sm_89", "+ptx80", 99 * kilobyte},
    {"sm_90", "+ptx80", 227 * kilobyte, false, true, true},
    {"sm_90a", "+ptx83", 227 * kilobyte, true, true, true},
    {"sm_100", "+ptx86", 227 * kilobyte, false, false, true},
    {"sm_100a", "+ptx86", 227 * kilobyte, false, false, true},
    {"sm_120", "+ptx87", 99 * kilobyte, false, false, true},
};

const Chip *Chip::find(StringRef name) {
  const Chip *found = llvm::find_if(chips, [&](const Chip &chip) { return chip.name == name; });
  return found == std::end(chips) ? nullptr : found;
}

FailureOr<Chip> Chip::named(StringRef name, function_ref<InFlightDiagnostic()> emitError) {
  if (const Chip *chip = find(name))
    return *chip;
  InFlightDiagnostic error = emitError() << "the chip '" << name << "' is not known, expected one of ";
  llvm::interleaveComma(chips, error, [&](const Chip &chip) { error << chip.name; });
  return error;
}
