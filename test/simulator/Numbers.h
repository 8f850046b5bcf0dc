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

/// The types of numbers that there are, which to ask of a type for each number would take longer than the number.
enum class Format { F16, BF16, F32, F64 };

inline Format formatOf(mlir::Type type) {
  return type.isF64() ? Format::F64 : type.isF32() ? Format::F32 : type.isBF16() ? Format::BF16 : Format::F16;
}

inline const llvm::fltSemantics &semanticsOf(Format format) {
  return format == Format::BF16 ? llvm::APFloat::BFloat() : llvm::APFloat::IEEEhalf();
}

inline double widen(uint64_t bits, Format format) {
  if (format == Format::F64)
    return std::bit_cast<double>(bits);
  if (format == Format::F32)
    return toFloat(bits);
  if (format == Format::BF16)
    return toFloat(bits << 16);
  llvm::APFloat value(semanticsOf(format), llvm::APInt(16, bits));
  return value.convertToFloat();
}

/// Numbers are computed with in fp64 and rounded to their type, which for sums, products and quotients of fp32 is the
/// rounding of fp32.
inline uint64_t narrow(double value, Format format) {
  if (format == Format::F64)
    return std::bit_cast<uint64_t>(value);
  if (format == Format::F32)
    return fromFloat(static_cast<float>(value));
  // The upper half of what is fp32, as most is; adding what is half of its last place and less for an even one rounds.
  if (auto single = static_cast<float>(value); format == Format::BF16 && single == value) {
    uint64_t bits = fromFloat(single);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
  llvm::APFloat result(value);
  bool losesInformation;
  result.convert(semanticsOf(format), llvm::APFloat::rmNearestTiesToEven, &losesInformation);
  return result.bitcastToAPInt().getZExtValue();
}

inline uint64_t truncated(uint64_t value, unsigned width) {
  return width >= 64 ? value : value & ((uint64_t(1) << width) - 1);
}
inline int64_t asSigned(uint64_t value, unsigned width) { return llvm::SignExtend64(value, width); }

} // namespace stretto::simulator

#endif // STRETTO_TEST_SIMULATOR_NUMBERS_H
