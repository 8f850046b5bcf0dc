//===- Numbers.h - Numbers of every type, as bits ---------------*- C++ -*-===//
#ifndef STRETTO_TEST_SIMULATOR_NUMBERS_H
#define STRETTO_TEST_SIMULATOR_NUMBERS_H

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/Support/MathExtras.h"
#include <bit>

namespace stretto::simulator {

inline float toFloat(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
inline uint64_t fromFloat(float value) { return std::bit_cast<uint32_t>(value); }

inline const llvm::fltSemantics &semanticsOf(mlir::Type type) {
  return cast<mlir::FloatType>(type).getFloatSemantics();
}

inline double widen(uint64_t bits, mlir::Type type) {
  if (type.isF64())
    return std::bit_cast<double>(bits);
  if (type.isF32())
    return toFloat(bits);
  if (type.isBF16())
    return toFloat(bits << 16);
  llvm::APFloat value(semanticsOf(type), llvm::APInt(16, bits));
  return value.convertToFloat();
}

/// Numbers are computed with in fp64 and rounded to their type, which for sums, products and quotients of fp32 is the
/// rounding of fp32.
inline uint64_t narrow(double value, mlir::Type type) {
  if (type.isF64())
    return std::bit_cast<uint64_t>(value);
  if (type.isF32())
    return fromFloat(static_cast<float>(value));
  llvm::APFloat result(value);
  bool losesInformation;
  result.convert(semanticsOf(type), llvm::APFloat::rmNearestTiesToEven, &losesInformation);
  return result.bitcastToAPInt().getZExtValue();
}

inline uint64_t truncated(uint64_t value, unsigned width) {
  return width >= 64 ? value : value & ((uint64_t(1) << width) - 1);
}
inline int64_t asSigned(uint64_t value, unsigned width) { return llvm::SignExtend64(value, width); }

} // namespace stretto::simulator

#endif // STRETTO_TEST_SIMULATOR_NUMBERS_H
