//===- Warpgroups.cpp - Products of four warps ----------------------------===//
//
// What `kernel.warpgroup_product` means is taken from its matrix descriptors alone, as an H200 does: so a wrong
// address, stride or exchange of pieces gives wrong numbers, or is an access to no memory. Products are under way until
// they are waited for; until then their results are not-a-number.
//
//===----------------------------------------------------------------------===//

#include "ThreadBlock.h"

using namespace mlir;
using namespace stretto::simulator;

namespace {
constexpr int threadsOfGroup = 128, rowsOfTile = 64, innerOfTile = 16, elementsOfPiece = 8, bytesOfPiece = 16;
constexpr uint64_t underWay = 0x7fc00000;

/// A matrix in shared memory as a descriptor says.
class Matrix {
public:
  Matrix(Operation *op, Memory &memory, Format element, bool transposed, std::vector<uint64_t> &bytesRead)
      : op(op), memory(memory), element(element), transposed(transposed), bytesRead(bytesRead) {}

  /// Elements [outer][inner] of the tile at a descriptor.
  void read(uint64_t descriptor, int outers, std::vector<float> &into) {
    auto field = [&](int from, int bits) { return descriptor >> from & ((uint64_t(1) << bits) - 1); };
    uint64_t start = field(0, 14) * bytesOfPiece, leading = field(16, 14) * bytesOfPiece,
             stride = field(32, 14) * bytesOfPiece, mode = field(62, 2);
    if (mode == 0 || field(49, 3) != 0)
      fail(op, "a matrix descriptor without an exchange of pieces, or with a base offset");
    uint64_t width = 256 >> mode, pieces = width / bytesOfPiece; // 128, 64 or 32 bytes
    into.assign(size_t(outers) * innerOfTile, 0);
    for (int outer = 0; outer < outers; outer += transposed ? elementsOfPiece : 1)
      for (int inner = 0; inner < innerOfTile; inner += transposed ? 1 : elementsOfPiece) {
        int row = transposed ? inner : outer, piece = (transposed ? outer : inner) / elementsOfPiece;
        uint64_t address = start + row % 8 * width + row / 8 * stride + piece % pieces * bytesOfPiece;
        if (transposed)
          address += piece / pieces * leading;
        address ^= (address >> 7 & (pieces - 1)) << 4;
        uint16_t elements[elementsOfPiece];
        std::memcpy(elements, memory.at(op, sharedAddress + address, bytesOfPiece), bytesOfPiece);
        memory.noteReadUnderWay(op, address, bytesOfPiece);
        bytesRead.push_back(address);
        for (int i = 0; i < elementsOfPiece; ++i)
          into[transposed ? (outer + i) * innerOfTile + inner : outer * innerOfTile + inner + i] =
              widen(elements[i], element);
      }
  }

private:
  Operation *op;
  Memory &memory;
  Format element;
  bool transposed;
  std::vector<uint64_t> &bytesRead;
};
} // namespace

Action ThreadBlock::compileWarpgroupProduct(Operation *op) {
  auto integer = [&](StringRef name) { return op->getAttrOfType<IntegerAttr>(name).getInt(); };
  ArrayRef<int32_t> segments = op->getAttrOfType<DenseI32ArrayAttr>("operandSegmentSizes").asArrayRef();
  std::vector<Slot> operands, results;
  for (Value operand : op->getOperands())
    operands.push_back(slotOf(operand));
  for (Value result : op->getResults())
    results.push_back(slotOf(result));
  bool hasDescriptor = segments[0];
  auto next = operands.begin();
  Slot left = hasDescriptor ? *next++ : Slot();
  std::vector<Slot> words(next, next + segments[1]);
  next += segments[1];
  Slot right = *next++;
  std::vector<Slot> sums(next, operands.end());
  int columns = integer("columns"), blocks = integer("blocks");
  auto offsetsOf = [&](StringRef name) {
    ArrayRef<int64_t> offsets = op->getAttrOfType<DenseI64ArrayAttr>(name).asArrayRef();
    return std::vector<int64_t>(offsets.begin(), offsets.end());
  };
  std::vector<int64_t> leftOffsets = offsetsOf("left_offsets"), rightOffsets = offsetsOf("right_offsets");
  int steps = leftOffsets.size() / blocks;
  Format element = formatOf(op->getAttrOfType<TypeAttr>("element").getValue());
  bool transposeLeft = op->hasAttr("transpose_left"), transposeRight = op->hasAttr("transpose_right");

  return [=, this] {
    mustConverge(op);
    // A loop comes here again.
    std::erase_if(groups, [&](const Group &earlier) {
      bool isSame = earlier.results.count(results[0].words);
      if (isSame && !earlier.isDone)
        fail(op, "a product that is still under way");
      return isSame;
    });
    Group group;
    std::vector<const uint64_t *> before;
    for (const Slot &sum : sums) {
      before.push_back(sum.words);
      for (const Group &earlier : groups)
        if (auto found = earlier.results.find(sum.words); found != earlier.results.end()) {
          before.back() = found->second.data();
          break;
        }
    }
    std::vector<std::vector<uint64_t>> numbers(results.size(), std::vector<uint64_t>(threads));
    std::vector<float> a, b, across(size_t(innerOfTile) * columns), products(columns);
    for (int first = 0; first < threads; first += threadsOfGroup) {
      auto descriptorOf = [&](const Slot &slot) {
        for (int thread = first; thread < first + threadsOfGroup; ++thread)
          if (slot.words[thread] != slot.words[first])
            fail(op, "threads of a warpgroup disagree about a matrix descriptor");
        return slot.words[first];
      };
      Matrix leftMatrix(op, memory, element, transposeLeft, group.pieces),
          rightMatrix(op, memory, element, transposeRight, group.pieces);
      // Calls `visit` with each thread, the number of a register of a tile, and its row and column.
      auto forEachNumber = [&](auto visit) {
        for (int thread = 0; thread < threadsOfGroup; ++thread)
          for (int reg = 0; reg < columns / 2; ++reg)
            visit(first + thread, reg, thread / lanes * 16 + thread % lanes / 4 + 8 * (reg >> 1 & 1),
                  reg / 4 * 8 + thread % 4 * 2 + (reg & 1));
      };
      for (int block = 0; block < blocks; ++block) {
        int firstRegister = block * columns / 2;
        std::vector<float> tile(size_t(rowsOfTile) * columns, 0);
        if (!sums.empty())
          forEachNumber([&](int thread, int reg, int row, int column) {
            tile[row * columns + column] = toFloat(before[firstRegister + reg][thread]);
          });
        for (int step = 0; step < steps; ++step) {
          int place = block * steps + step;
          if (hasDescriptor) {
            leftMatrix.read(descriptorOf(left) + leftOffsets[place], rowsOfTile, a);
          } else {
            a.assign(size_t(rowsOfTile) * innerOfTile, 0);
            for (int thread = 0; thread < threadsOfGroup; ++thread)
              for (int word = 0; word < 4; ++word)
                for (int half = 0; half < 2; ++half) {
                  int row = thread / lanes * 16 + thread % lanes / 4 + 8 * (word & 1);
                  int inner = thread % 4 * 2 + half + 8 * (word >> 1);
                  uint64_t both = words[leftOffsets[place] + word].words[first + thread];
                  a[row * innerOfTile + inner] = widen(both >> (16 * half) & 0xffff, element);
                }
          }
          rightMatrix.read(descriptorOf(right) + rightOffsets[place], columns, b);
          for (int column = 0; column < columns; ++column)
            for (int inner = 0; inner < innerOfTile; ++inner)
              across[inner * columns + column] = b[column * innerOfTile + inner];
          // Column by column, which the host does side by side.
          for (int row = 0; row < rowsOfTile; ++row) {
            std::fill(products.begin(), products.end(), 0);
            for (int inner = 0; inner < innerOfTile; ++inner)
              for (int column = 0; column < columns; ++column)
                products[column] += a[row * innerOfTile + inner] * across[inner * columns + column];
            for (int column = 0; column < columns; ++column)
              tile[row * columns + column] += products[column];
          }
        }
        forEachNumber([&](int thread, int reg, int row, int column) {
          numbers[firstRegister + reg][thread] = fromFloat(tile[row * columns + column]);
        });
      }
    }
    for (size_t i = 0; i < results.size(); ++i) {
      group.results[results[i].words] = std::move(numbers[i]);
      std::fill_n(results[i].words, threads, underWay);
    }
    groups.push_back(std::move(group));
  };
}

Action ThreadBlock::compileWarpgroupWait(Operation *op) {
  std::vector<Slot> sums, results;
  for (Value operand : op->getOperands())
    sums.push_back(slotOf(operand));
  for (Value result : op->getResults())
    results.push_back(slotOf(result));
  size_t pending = op->getAttrOfType<IntegerAttr>("pending").getInt();
  return [=, this] {
    mustConverge(op);
    size_t first = groups.size() - std::min(groups.size(), pending), done = 0;
    for (size_t i = 0; i < sums.size(); ++i)
      for (size_t number = 0; number < first; ++number)
        if (auto found = groups[number].results.find(sums[i].words); found != groups[number].results.end()) {
          std::copy(found->second.begin(), found->second.end(), results[i].words);
          ++done;
        }
    if (done != sums.size())
      fail(op, "the results of a product that is under way, or of none");
    // The results of those that are done may still be asked for.
    for (size_t number = 0; number < first; ++number) {
      groups[number].isDone = true;
      for (uint64_t piece : std::exchange(groups[number].pieces, {}))
        memory.finishRead(piece, bytesOfPiece);
    }
  };
}
