//===- Layout.cpp - Where the elements of a tile are ----------------------===//

#include "dialect/kernel/Layout.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <map>

using namespace stretto::kernel;
using llvm::ArrayRef;
using llvm::SmallVector;

unsigned Layout::totalBits() const {
  unsigned total = 0;
  for (unsigned bits : sideBits)
    total += bits;
  return total;
}

/// How far a side's bits are shifted in a flat coordinate.
static unsigned shiftOf(const Layout &layout, unsigned side) {
  unsigned shift = 0;
  for (unsigned later = side + 1; later < layout.rank(); ++later)
    shift += layout.bitsOf(later);
  return shift;
}

uint64_t Layout::flat(ArrayRef<int64_t> coordinates) const {
  assert(coordinates.size() == rank() && "one coordinate for each side");
  uint64_t result = 0;
  for (unsigned side = 0; side < rank(); ++side)
    result |= static_cast<uint64_t>(coordinates[side]) << shiftOf(*this, side);
  return result;
}

uint64_t Layout::maskOf(unsigned side) const {
  return llvm::maskTrailingOnes<uint64_t>(bitsOf(side)) << shiftOf(*this, side);
}

int64_t Layout::coordinate(uint64_t flat, unsigned side) const {
  return static_cast<int64_t>((flat & maskOf(side)) >> shiftOf(*this, side));
}

Layout &Layout::add(Space space, ArrayRef<int64_t> vector) {
  bool inside = true;
  for (unsigned side = 0; side < rank(); ++side)
    inside &= vector[side] < this->side(side);
  if (inside)
    return addFlat(space, flat(vector));
  return space == Lane || space == Warp ? addFlat(space, 0) : *this;
}

Layout &Layout::addCopies(Space space, unsigned count) {
  bases[space].append(count, 0);
  return *this;
}

Layout &Layout::addFlat(Space space, uint64_t vector) {
  bases[space].push_back(vector);
  return *this;
}

uint64_t Layout::at(Space space, uint64_t number) const {
  uint64_t result = 0;
  for (auto [bit, vector] : llvm::enumerate(bases[space]))
    if (number >> bit & 1)
      result ^= vector;
  return result;
}

uint64_t Layout::reach(Space space) const {
  uint64_t result = 0;
  for (uint64_t vector : bases[space])
    result |= vector;
  return result;
}

Layout Layout::onto(unsigned side) const {
  Layout result({bitsOf(side)});
  for (unsigned space = 0; space < numSpaces; ++space)
    for (uint64_t vector : bases[space])
      if (int64_t kept = coordinate(vector, side); kept || space == Lane || space == Warp)
        result.addFlat(static_cast<Space>(space), kept);
  return result;
}

Layout Layout::transposed() const {
  Layout result({bitsOf(1), bitsOf(0)});
  for (unsigned space = 0; space < numSpaces; ++space)
    for (uint64_t vector : bases[space])
      result.addFlat(static_cast<Space>(space), result.flat({coordinate(vector, 1), coordinate(vector, 0)}));
  return result;
}

//===----------------------------------------------------------------------===//
// Elimination
//===----------------------------------------------------------------------===//

namespace {
/// Vectors over two elements, in echelon form, each with the combination of the added vectors that it is.
class Span {
public:
  /// Adds the next vector; the earlier ones are preferred when a target is expressed.
  void add(uint64_t vector) {
    uint64_t combination = uint64_t(1) << count++;
    reduce(vector, combination);
    if (vector)
      rows.push_back({vector, combination});
  }

  /// Which vectors combine to `target`, as a mask in the order in which they were added.
  std::optional<uint64_t> express(uint64_t target) const {
    uint64_t combination = 0;
    reduce(target, combination);
    return target ? std::nullopt : std::optional(combination);
  }

private:
  void reduce(uint64_t &vector, uint64_t &combination) const {
    for (auto [row, parts] : rows)
      if (vector & llvm::bit_floor(row)) {
        vector ^= row;
        combination ^= parts;
      }
  }

  SmallVector<std::pair<uint64_t, uint64_t>> rows;
  unsigned count = 0;
};
} // namespace

std::optional<SmallVector<uint64_t>> Layout::offsetsOfCoordinates() const {
  if (bits(Offset) != totalBits())
    return std::nullopt;
  Span span;
  for (uint64_t vector : bases[Offset])
    span.add(vector);
  SmallVector<uint64_t> result;
  for (unsigned bit = 0; bit < totalBits(); ++bit) {
    std::optional<uint64_t> offset = span.express(uint64_t(1) << bit);
    if (!offset)
      return std::nullopt;
    result.push_back(*offset);
  }
  return result;
}

Conversion Conversion::between(const Layout &source, const Layout &target) {
  assert(source.rank() == target.rank() && "layouts of one tile");
  Conversion result;

  // Lanes and warps that contribute the same keep their elements if registers alone can express the rest.
  Span registers;
  for (uint64_t vector : source.basis(Layout::Register))
    registers.add(vector);
  auto sameLanesAndWarps = [&](Layout::Space space) { return source.basis(space) == target.basis(space); };
  if (sameLanesAndWarps(Layout::Lane) && sameLanesAndWarps(Layout::Warp)) {
    for (uint64_t vector : target.basis(Layout::Register)) {
      std::optional<uint64_t> reg = registers.express(vector);
      if (!reg)
        return result;
      result.fromRegister.push_back({*reg, 0});
    }
    result.fromLane.resize(target.bits(Layout::Lane));
    result.fromWarp.resize(target.bits(Layout::Warp));
    result.kind = SameRegisters;
    return result;
  }

  // Within a warp any lane may be asked. The warp's own contribution is given, the rest is to be expressed by lanes
  // (first, because the choice of a register costs a selection) and registers.
  Span warp;
  for (uint64_t vector : source.basis(Layout::Lane))
    warp.add(vector);
  for (uint64_t vector : source.basis(Layout::Register))
    warp.add(vector);
  unsigned laneBits = source.bits(Layout::Lane);
  auto express = [&](uint64_t vector, llvm::SmallVectorImpl<Source> &into) {
    std::optional<uint64_t> mask = warp.express(vector);
    if (!mask)
      return false;
    into.push_back({*mask >> laneBits, *mask & llvm::maskTrailingOnes<uint64_t>(laneBits)});
    return true;
  };
  for (uint64_t vector : target.basis(Layout::Register))
    if (!express(vector, result.fromRegister))
      return result;
  for (uint64_t vector : target.basis(Layout::Lane))
    if (!express(vector, result.fromLane))
      return result;
  for (auto [own, wanted] : llvm::zip_equal(source.basis(Layout::Warp), target.basis(Layout::Warp)))
    if (!express(own ^ wanted, result.fromWarp))
      return result;
  result.kind = Shuffle;
  return result;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

static constexpr llvm::StringLiteral spaceNames[] = {"register", "lane", "warp", "offset"};

std::string Layout::str() const {
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::ListSeparator comma;
  for (unsigned space = 0; space < numSpaces; ++space) {
    if (bases[space].empty())
      continue;
    out << comma << spaceNames[space] << " = [";
    llvm::interleaveComma(bases[space], out, [&](uint64_t vector) {
      out << "[";
      llvm::ListSeparator inner;
      for (unsigned side = 0; side < rank(); ++side)
        out << inner << coordinate(vector, side);
      out << "]";
    });
    out << "]";
  }
  return text;
}

std::string Layout::picture(int64_t rows, int64_t columns) const {
  // The first holder of each element.
  std::map<uint64_t, std::string> cells;
  for (int64_t offset = 0; inSharedMemory() && offset < size(Offset); ++offset)
    cells.try_emplace(at(Offset, offset), std::to_string(offset));
  for (int64_t warp = 0; !inSharedMemory() && warp < size(Warp); ++warp)
    for (int64_t lane = 0; lane < size(Lane); ++lane)
      for (int64_t reg = 0; reg < size(Register); ++reg)
        cells.try_emplace(
            at(Place{static_cast<uint64_t>(reg), static_cast<uint64_t>(lane), static_cast<uint64_t>(warp)}),
            llvm::formatv("{0}:{1}:{2}", warp, lane, reg).str());

  int64_t height = rank() == 2 ? std::min(rows, side(0)) : 1;
  int64_t width = rank() == 0 ? 1 : std::min(columns, side(rank() - 1));
  std::string text;
  llvm::raw_string_ostream out(text);
  for (int64_t row = 0; row < height; ++row) {
    for (int64_t column = 0; column < width; ++column) {
      SmallVector<int64_t, 2> coordinates = {row, column};
      auto cell = cells.find(flat(ArrayRef<int64_t>(coordinates).take_back(rank())));
      out << llvm::formatv("{0,9}", cell == cells.end() ? "-" : cell->second);
    }
    out << "\n";
  }
  return text;
}

//===----------------------------------------------------------------------===//
// The layouts in use
//===----------------------------------------------------------------------===//

static constexpr int64_t lanes = 32, fragmentSide = 16, columnsOfFragment = 8, warpsOfGroup = 4, rowsOfWarpgroup = 64;

unsigned stretto::kernel::bitsToCount(int64_t size) { return llvm::Log2_64_Ceil(std::max<int64_t>(size, 1)); }

SmallVector<unsigned, 2> stretto::kernel::paddedBits(ArrayRef<int64_t> shape) {
  SmallVector<unsigned, 2> result;
  for (int64_t size : shape)
    result.push_back(size == 1 ? 0 : bitsToCount(std::max(size, fragmentSide)));
  return result;
}

WarpGrid WarpGrid::of(int64_t rows, int64_t columns, int64_t warps) {
  SmallVector<unsigned, 2> bits = paddedBits({rows, columns});
  int64_t byRows = std::min<int64_t>({warps, 4, std::max<int64_t>((int64_t(1) << bits[0]) / fragmentSide, 1)});
  return {byRows, warps / byRows};
}

int64_t WarpGrid::columnsTogether(int64_t width) const {
  int64_t ofWarp = llvm::alignTo(width, fragmentSide) / columns;
  return std::max(ofWarp & -ofWarp, columnsOfFragment);
}

/// Adds the bits of one side from `from` on, until the side is covered.
static void addRemaining(Layout &layout, Layout::Space space, unsigned side, int64_t from) {
  for (int64_t step = from; step < layout.side(side); step *= 2) {
    SmallVector<int64_t, 2> vector(layout.rank(), 0);
    vector[side] = step;
    layout.add(space, vector);
  }
}

/// What the fragments of results and of left operands share: lanes 4 x 8, pairs of columns, rows 8 apart.
static Layout fragment(ArrayRef<int64_t> shape) {
  Layout layout(paddedBits(shape));
  layout.add(Layout::Register, {0, 1}).add(Layout::Register, {8, 0});
  layout.add(Layout::Lane, {0, 2}).add(Layout::Lane, {0, 4});
  return layout.add(Layout::Lane, {1, 0}).add(Layout::Lane, {2, 0}).add(Layout::Lane, {4, 0});
}

Layout stretto::kernel::registerLayout(ArrayRef<int64_t> shape, int64_t warps) {
  if (shape.size() == 2) {
    WarpGrid grid = WarpGrid::of(shape[0], shape[1], warps);
    Layout layout = fragment(shape);
    for (int64_t step = 1; step < grid.rows; step *= 2)
      layout.add(Layout::Warp, {fragmentSide * step, 0});
    int64_t together = grid.columnsTogether(shape[1]), next = together * grid.columns;
    for (int64_t step = together; step < next; step *= 2)
      layout.add(Layout::Warp, {0, step});
    for (int64_t step = columnsOfFragment; step < together; step *= 2)
      layout.add(Layout::Register, {0, step});
    addRemaining(layout, Layout::Register, 1, next);
    addRemaining(layout, Layout::Register, 0, fragmentSide * grid.rows);
    return layout;
  }
  Layout layout(paddedBits(shape));
  bool isVector = shape.size() == 1;
  for (int64_t step = 1; step < lanes; step *= 2)
    isVector ? layout.add(Layout::Lane, {step}) : layout.addFlat(Layout::Lane, 0);
  for (int64_t step = 1; step < warps; step *= 2)
    layout.addFlat(Layout::Warp, 0);
  if (isVector)
    addRemaining(layout, Layout::Register, 0, lanes);
  return layout;
}

/// Whether `wgmma` forms the transpose of a matrix, and could form the matrix itself with many rows of padding alone.
/// Rows of a power of two have fragments of single warps, which are left where warpgroups divide the columns.
static bool isFormedAcross(ArrayRef<int64_t> shape, int64_t groups) {
  constexpr int64_t mostColumns = 256;
  bool areDivided = groups > 1 && shape[1] % (groups * rowsOfWarpgroup) == 0;
  return shape[1] % rowsOfWarpgroup == 0 && shape[0] % rowsOfWarpgroup && shape[0] > fragmentSide &&
         shape[0] <= mostColumns && (areDivided || !llvm::isPowerOf2_64(shape[0]));
}

/// What warpgroups leave of a matrix whose rows they divide if there are enough.
static Layout rowsOfWarpgroups(ArrayRef<int64_t> shape, int64_t groups) {
  Layout layout = registerLayout({rowsOfWarpgroup, shape[1]}, warpsOfGroup);
  Layout result(paddedBits(shape));
  for (Layout::Space space : {Layout::Register, Layout::Lane, Layout::Warp})
    for (uint64_t vector : layout.basis(space))
      result.add(space, {layout.coordinate(vector, 0), layout.coordinate(vector, 1)});
  int64_t rows = rowsOfWarpgroup;
  for (; groups > 1; groups /= 2) {
    bool divides = shape[0] % (2 * rows) == 0;
    result.add(Layout::Warp, {divides ? rows : 0, 0});
    rows *= divides ? 2 : 1;
  }
  addRemaining(result, Layout::Register, 0, rows);
  return result;
}

Layout stretto::kernel::warpgroupLayout(ArrayRef<int64_t> shape, int64_t warps, bool rowsApart) {
  if (shape.size() != 2 || warps < warpsOfGroup)
    return registerLayout(shape, warps);
  int64_t groups = warps / warpsOfGroup;
  bool isAcross = isFormedAcross(shape, groups);
  SmallVector<int64_t, 2> formed(shape);
  if (isAcross)
    std::swap(formed[0], formed[1]);
  int64_t share = static_cast<int64_t>(llvm::alignTo(formed[1], fragmentSide)) / groups;
  int64_t together = WarpGrid{warpsOfGroup, groups}.columnsTogether(formed[1]);
  bool haveRows = formed[0] % (groups * rowsOfWarpgroup) == 0;
  bool isInPieces = together < share && (haveRows || together == columnsOfFragment);
  bool divides =
      groups > 1 && formed[0] % rowsOfWarpgroup == 0 && (isInPieces || (haveRows && (isAcross || rowsApart)));
  Layout layout = divides ? rowsOfWarpgroups(formed, groups) : registerLayout(formed, warps);
  return isAcross ? layout.transposed() : layout;
}

bool stretto::kernel::liesAcross(const Layout &layout) {
  ArrayRef<uint64_t> ofLanes = layout.basis(Layout::Lane);
  return layout.rank() == 2 && ofLanes.size() > 2 && ofLanes[0] == layout.flat({2, 0}) &&
         ofLanes[1] == layout.flat({4, 0}) && ofLanes[2] == layout.flat({0, 1});
}

Layout stretto::kernel::sideBySide(const Layout &part, ArrayRef<int64_t> shape) {
  Layout layout(paddedBits(shape));
  for (Layout::Space space : {Layout::Register, Layout::Lane, Layout::Warp})
    for (uint64_t vector : part.basis(space))
      layout.add(space, {part.coordinate(vector, 0), part.coordinate(vector, 1)});
  addRemaining(layout, Layout::Register, 1, part.side(1));
  return layout;
}

Layout stretto::kernel::sweepLayout(ArrayRef<int64_t> shape, int64_t perAccess, int64_t warps) {
  constexpr unsigned lineBits = 5; // 128 bytes of fp32 numbers
  Layout layout(paddedBits(shape));
  unsigned laneBits = bitsToCount(lanes), warpBits = bitsToCount(warps);
  unsigned columns = layout.rank() ? layout.bitsOf(layout.rank() - 1) : 0, rows = layout.totalBits() - columns;
  // Bits are dealt in order; where there are none left, threads hold copies. Bits that are those of lanes in a row of
  // tokens are dealt to lanes and warps first: each number then gets to a matrix by one shuffle.
  unsigned column = 0, row = 0;
  auto dealColumns = [&](Layout::Space space, unsigned count) {
    for (; count; --count)
      layout.addFlat(space, column < columns ? uint64_t(1) << column++ : 0);
  };
  auto dealRows = [&](Layout::Space space, unsigned count) {
    for (; count; --count)
      layout.addFlat(space, uint64_t(1) << (columns + row++));
  };
  bool isMatrix = rows > 0;
  if (isMatrix)
    dealColumns(Layout::Register, std::min(columns, bitsToCount(perAccess)));
  unsigned ofLine = isMatrix ? std::min(lineBits, columns) - column : laneBits;
  unsigned laneRows = std::min(laneBits - ofLine, rows), warpRows = std::min(warpBits, rows - laneRows);
  dealColumns(Layout::Lane, ofLine);
  dealRows(Layout::Lane, laneRows);
  dealColumns(Layout::Lane, laneBits - ofLine - laneRows);
  dealRows(Layout::Warp, warpRows);
  if (isMatrix)
    dealColumns(Layout::Warp, warpBits - warpRows);
  else
    layout.addCopies(Layout::Warp, warpBits);
  dealColumns(Layout::Register, columns - column);
  dealRows(Layout::Register, rows - row);
  return layout;
}

Layout stretto::kernel::runLayout(ArrayRef<int64_t> shape, int64_t warps) {
  Layout layout(paddedBits(shape));
  unsigned laneBits = bitsToCount(lanes), threadBits = laneBits + bitsToCount(warps);
  unsigned pair = std::min(layout.bitsOf(1), 1u), columns = std::min(layout.bitsOf(1) - pair, threadBits);
  unsigned run = layout.bitsOf(0) - std::min(layout.bitsOf(0), threadBits - columns);
  addRemaining(layout.add(Layout::Register, {0, 1}), Layout::Register, 1, int64_t(2) << columns);
  for (unsigned bit = 0; bit < run; ++bit)
    layout.add(Layout::Register, {int64_t(1) << bit, 0});
  for (unsigned bit = 0; bit < threadBits; ++bit) {
    Layout::Space space = bit < laneBits ? Layout::Lane : Layout::Warp;
    bit < columns ? layout.add(space, {0, int64_t(2) << bit})
                  : layout.add(space, {int64_t(1) << (run + bit - columns), 0});
  }
  return layout;
}

Layout stretto::kernel::tapsLayout(ArrayRef<int64_t> shape, int64_t warps) {
  Layout layout(paddedBits(shape));
  std::array<unsigned, 2> dealt = {0, 0}, existing = {bitsToCount(shape[0]), bitsToCount(shape[1])};
  auto deal = [&](Layout::Space space, unsigned count) {
    for (unsigned side : {0u, 1u})
      for (; count && dealt[side] < existing[side]; --count, ++dealt[side])
        layout.add(space, side == 0 ? std::array<int64_t, 2>{int64_t(1) << dealt[side], 0}
                                    : std::array<int64_t, 2>{0, int64_t(1) << dealt[side]});
    if (space != Layout::Register)
      layout.addCopies(space, count);
  };
  deal(Layout::Lane, bitsToCount(lanes));
  deal(Layout::Warp, bitsToCount(warps));
  existing = {layout.bitsOf(0), layout.bitsOf(1)};
  deal(Layout::Register, std::numeric_limits<unsigned>::max());
  return layout;
}

Layout stretto::kernel::rowsLayout(ArrayRef<int64_t> shape, int64_t warps) {
  constexpr unsigned mostTogether = 2; // bits of four columns
  Layout layout(paddedBits(shape));
  unsigned laneBits = bitsToCount(lanes), warpBits = bitsToCount(warps);
  unsigned together = std::min(layout.bitsOf(1), mostTogether);
  unsigned ofLanes = std::min(layout.bitsOf(1) - together, laneBits);
  unsigned ofWarps = std::min(layout.bitsOf(0), warpBits);
  unsigned rowsOfLanes = std::min(layout.bitsOf(0) - ofWarps, laneBits - ofLanes);
  unsigned rowsOfThreads = ofWarps + rowsOfLanes;
  auto deal = [&](Layout::Space space, unsigned side, unsigned from, unsigned count) {
    for (unsigned bit = from; bit < from + count; ++bit)
      layout.add(space, side == 0 ? std::array<int64_t, 2>{int64_t(1) << bit, 0}
                                  : std::array<int64_t, 2>{0, int64_t(1) << bit});
  };
  deal(Layout::Register, 1, 0, together);
  deal(Layout::Register, 0, rowsOfThreads, layout.bitsOf(0) - rowsOfThreads);
  deal(Layout::Register, 1, together + ofLanes, layout.bitsOf(1) - together - ofLanes);
  deal(Layout::Lane, 1, together, ofLanes);
  deal(Layout::Lane, 0, ofWarps, rowsOfLanes);
  layout.addCopies(Layout::Lane, laneBits - ofLanes - rowsOfLanes);
  deal(Layout::Warp, 0, 0, ofWarps);
  layout.addCopies(Layout::Warp, warpBits - ofWarps);
  return layout;
}

int64_t stretto::kernel::neighbouringColumns(const Layout &layout) {
  int64_t count = 1, columns = layout.rank() ? layout.side(layout.rank() - 1) : 1;
  for (uint64_t vector : layout.basis(Layout::Register)) {
    if (vector != static_cast<uint64_t>(count) || count == columns)
      break;
    count *= 2;
  }
  return count;
}

int64_t stretto::kernel::rowsWithinWarps(const Layout &layout) {
  int64_t rows = 1;
  for (uint64_t vector : layout.basis(Layout::Warp))
    rows = std::max(rows, 2 * layout.coordinate(vector, 0));
  return rows;
}

Layout stretto::kernel::leftOperandLayout(int64_t rows, int64_t inner, WarpGrid grid) {
  Layout layout = fragment({rows, inner});
  for (int64_t step = 1; step < grid.rows; step *= 2)
    layout.add(Layout::Warp, {fragmentSide * step, 0});
  for (int64_t step = 1; step < grid.columns; step *= 2)
    layout.addFlat(Layout::Warp, 0);
  addRemaining(layout, Layout::Register, 1, 8);
  addRemaining(layout, Layout::Register, 0, fragmentSide * grid.rows);
  return layout;
}

WarpGrid WarpGrid::ofMatvec(int64_t rows, bool transposed, int64_t warps) {
  int64_t byRows = std::min<int64_t>(warps, std::max<int64_t>(llvm::bit_floor<uint64_t>(rows / fragmentSide), 1));
  return transposed ? WarpGrid{byRows, warps / byRows} : of(rows, /*columns=*/1, warps);
}

Layout stretto::kernel::rightVectorLayout(int64_t inner, int64_t warps) {
  Layout layout(paddedBits({inner}));
  layout.add(Layout::Register, {1}).add(Layout::Register, {8}).add(Layout::Lane, {2}).add(Layout::Lane, {4});
  layout.addCopies(Layout::Lane, bitsToCount(lanes) - 2).addCopies(Layout::Warp, bitsToCount(warps));
  addRemaining(layout, Layout::Register, 0, fragmentSide);
  return layout;
}

Layout stretto::kernel::matvecLayout(int64_t rows, bool transposed, int64_t warps) {
  return leftOperandLayout(rows, fragmentSide, WarpGrid::ofMatvec(rows, transposed, warps)).onto(0);
}

Layout stretto::kernel::copyLayout(ArrayRef<int64_t> shape, int64_t perAccess, int64_t warps) {
  Layout layout(paddedBits(shape));
  // Bits in the order in which they are dealt: along the last side, then along the first.
  SmallVector<uint64_t> remaining;
  for (unsigned bit = 0; bit < layout.totalBits(); ++bit)
    remaining.push_back(uint64_t(1) << bit);
  ArrayRef<uint64_t> bits = remaining;
  auto deal = [&](Layout::Space space, unsigned count) {
    for (; count; --count) {
      layout.addFlat(space, bits.empty() ? 0 : bits.front());
      bits = bits.drop_front(bits.empty() ? 0 : 1);
    }
  };
  deal(Layout::Register, std::min<unsigned>(bitsToCount(perAccess), bits.size()));
  deal(Layout::Lane, bitsToCount(lanes));
  deal(Layout::Warp, bitsToCount(warps));
  deal(Layout::Register, bits.size());
  return layout;
}

std::optional<Layout> stretto::kernel::alongRows(const Layout &layout, int64_t perAccess) {
  if (layout.rank() != 2 || perAccess < 2)
    return std::nullopt;
  Layout result({layout.bitsOf(0), layout.bitsOf(1)});
  uint64_t ofWarps = 0;
  for (uint64_t vector : layout.basis(Layout::Warp)) {
    if (!llvm::isPowerOf2_64(vector))
      return std::nullopt;
    ofWarps |= vector;
    result.addFlat(Layout::Warp, vector);
  }
  SmallVector<uint64_t> remaining;
  for (unsigned bit = 0; bit < layout.totalBits(); ++bit)
    if (!(ofWarps >> bit & 1))
      remaining.push_back(uint64_t(1) << bit);
  unsigned piece = bitsToCount(perAccess), ofLanes = bitsToCount(lanes);
  if (remaining.size() < piece + ofLanes || remaining[piece - 1] != layout.flat({0, perAccess / 2}))
    return std::nullopt;
  for (auto [index, vector] : llvm::enumerate(remaining))
    result.addFlat(index >= piece && index < piece + ofLanes ? Layout::Lane : Layout::Register, vector);
  return result;
}

Layout stretto::kernel::sharedLayout(ArrayRef<int64_t> shape, int64_t bytesPerElement) {
  constexpr int64_t pieceBytes = 16;
  Layout layout(paddedBits(shape));
  if (layout.rank() < 2) {
    for (unsigned bit = 0; bit < layout.totalBits(); ++bit)
      layout.addFlat(Layout::Offset, uint64_t(1) << bit);
    return layout;
  }
  int64_t perPiece = pieceBytes / bytesPerElement;
  int64_t width = std::min(layout.side(1), bytesOfBanks / bytesPerElement);
  for (int64_t column = 1; column < width; column *= 2)
    layout.add(Layout::Offset, {0, column});
  // A row that is shorter than all banks shares them with its neighbours: those are not exchanged.
  int64_t rowsPerBankRow = std::max<int64_t>(bytesOfBanks / (width * bytesPerElement), 1);
  for (int64_t row = 1; row < layout.side(0); row *= 2) {
    int64_t exchanged = row / rowsPerBankRow * perPiece;
    bool reaches = row >= rowsPerBankRow && row < 8 && exchanged < width;
    layout.add(Layout::Offset, {row, reaches ? exchanged : 0});
  }
  addRemaining(layout, Layout::Offset, 1, width);
  return layout;
}
