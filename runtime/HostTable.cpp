//===- HostTable.cpp - Numbers that the host computes for kernels ---------===//

#include "runtime/HostTable.h"
#include "dialect/stretto/interpreter/Compiler.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/DenseSet.h"
#include <map>
#include <tuple>

using namespace mlir;
using namespace stretto;
using namespace stretto::interpreter;

static const llvm::fltSemantics &semanticsOf(ElementType type) {
  switch (type) {
  case ElementType::F16:
    return APFloat::IEEEhalf();
  case ElementType::BF16:
    return APFloat::BFloat();
  case ElementType::F32:
    return APFloat::IEEEsingle();
  case ElementType::F64:
    return APFloat::IEEEdouble();
  }
  llvm_unreachable("covered switch");
}

/// Writes numbers in a type of memory.
static void encode(ArrayRef<double> numbers, ElementType type, char *target) {
  int64_t bytes = bytesOf(type);
  // A processor rounds to these itself; long tables have millions of numbers.
  if (type == ElementType::F64) {
    std::memcpy(target, numbers.data(), numbers.size() * bytes);
    return;
  }
  if (type == ElementType::F32) {
    for (auto [index, number] : llvm::enumerate(numbers)) {
      auto value = static_cast<float>(number);
      std::memcpy(target + index * bytes, &value, bytes);
    }
    return;
  }
  for (auto [index, number] : llvm::enumerate(numbers)) {
    APFloat value(number);
    bool inexact;
    value.convert(semanticsOf(type), APFloat::rmNearestTiesToEven, &inexact);
    uint64_t bits = value.bitcastToAPInt().getZExtValue();
    std::memcpy(target + index * bytes, &bits, bytes); // little endian, as both targets are
  }
}

std::vector<char> stretto::evaluateTable(chunk::TableOp table, int64_t heads, int64_t positions, int64_t width,
                                         ElementType type) {
  // A real number of the body stands for one number for each channel of some positions of a head, few enough for all
  // numbers of the body to stay in a cache.
  constexpr int64_t maximalLanes = 4096;
  int64_t block = std::clamp<int64_t>(maximalLanes / width, 1, positions), lanes = block * width;
  Frame frame;
  std::vector<std::vector<double>> numbers;
  llvm::DenseMap<Value, Row> rows;
  auto define = [&](Value value, int64_t size) -> std::vector<double> & {
    rows[value] = {static_cast<unsigned>(numbers.size()), 1, size};
    return numbers.emplace_back(size);
  };
  auto indices = table.getBody().getArguments();
  numbers.reserve(table.getBody().front().getOperations().size() + indices.size());
  std::vector<double> &position = define(indices[0], lanes), &head = define(indices[1], 1),
                      &channel = define(indices[2], lanes);
  for (int64_t i = 0; i < lanes; ++i)
    channel[i] = static_cast<double>(i % width);

  // What depends on the channel alone is found once.
  llvm::DenseSet<Value> varying = {indices[0], indices[1]};
  std::vector<Instruction> once, program;
  for (Operation &op : table.getBody().front().without_terminator()) {
    Attribute constant;
    if (matchPattern(&op, m_Constant(&constant))) {
      auto number = dyn_cast<FloatAttr>(constant);
      define(op.getResult(0), 1)[0] =
          number ? number.getValueAsDouble() : double(cast<IntegerAttr>(constant).getValue().getBoolValue());
      continue;
    }
    define(op.getResult(0), lanes);
    auto operands = llvm::map_to_vector(op.getOperands(), [&](Value operand) { return rows.lookup(operand); });
    bool varies = llvm::any_of(op.getOperands(), [&](Value operand) { return varying.contains(operand); });
    if (varies)
      varying.insert(op.getResult(0));
    (varies ? program : once).push_back(compileElementwise(&op, rows[op.getResult(0)], operands));
  }
  for (std::vector<double> &buffer : numbers)
    frame.slots.push_back({buffer.data(), 0});
  for (const Instruction &instruction : once)
    instruction(frame);

  const Row &result = rows[table.getBody().front().getTerminator()->getOperand(0)];
  std::vector<double> values(lanes);
  int64_t stride = Manifest::strideOfTable(width, type);
  std::vector<char> encoded(heads * positions * stride * bytesOf(type));
  for (int64_t begin = 0; begin < positions; begin += block) {
    int64_t count = std::min(block, positions - begin);
    for (int64_t i = 0; i < lanes; ++i)
      position[i] = static_cast<double>(begin + i / width);
    for (int64_t h = 0; h < heads; ++h) {
      head[0] = static_cast<double>(h);
      for (const Instruction &instruction : program)
        instruction(frame);
      for (int64_t i = 0; i < lanes; ++i)
        values[i] = frame.at(result)[result.size() == 1 ? 0 : i];
      for (int64_t row = 0; row < count; ++row)
        encode(ArrayRef(values).slice(row * width, width), type,
               encoded.data() + (h * positions + begin + row) * stride * bytesOf(type));
    }
  }
  return encoded;
}

/// What a table says, whatever it is called.
static std::string definitionOf(chunk::TableOp table) {
  OwningOpRef<chunk::TableOp> unnamed = table.clone();
  unnamed->setSymName("table");
  std::string text;
  llvm::raw_string_ostream stream(text);
  unnamed->print(stream, OpPrintingFlags().enableDebugInfo(false));
  return text;
}

std::shared_ptr<PlacedTable> PlacedTable::of(chunk::TableOp table, int64_t heads, int64_t width, ElementType type,
                                             int device) {
  using Key = std::tuple<std::string, int64_t, int64_t, ElementType, int>;
  static std::mutex mutex;
  static auto &placed = *new std::map<Key, std::weak_ptr<PlacedTable>>();
  Key key(definitionOf(table), heads, width, type, device);
  std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<PlacedTable> &known = placed[std::move(key)];
  std::shared_ptr<PlacedTable> shared = known.lock();
  if (!shared)
    known = shared = std::shared_ptr<PlacedTable>(new PlacedTable(heads, width, type, device));
  return shared;
}

PlacedTable::Numbers PlacedTable::upTo(int64_t positions, chunk::TableOp table, Upload upload) {
  std::lock_guard<std::mutex> lock(mutex);
  if (numbers.data && numbers.positions >= positions)
    return numbers;
  std::vector<char> bytes = evaluateTable(table, heads, positions, width, type);
  if (device < 0)
    numbers.data = onHost.emplace_back(std::move(bytes)).data();
  else
    numbers.data = upload(bytes);
  numbers.positions = positions;
  return numbers;
}
