//===- Layout.h - Where the elements of a tile are --------------*- C++ -*-===//
//
// A tile of 2^a rows and 2^b columns is spread over the registers of the lanes of the warps of a block, or over
// offsets in shared memory. Each of these numbers is a string of bits, and so is the coordinate of an element. A
// layout is a linear map between the two over the field of two elements: every bit of the register's, the lane's and
// the warp's number contributes a fixed coordinate, its basis vector, and the contributions of the bits that are set
// are combined by exclusive or. Four basis vectors say where all of an 8 x 8 tile is:
//
//   register = [(0, 1)]   lane = [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)]
//
//          columns 0 1 2 3 4 5 6 7        lane 7 = 1 + 2 + 4 holds (0, 2) ^ (0, 4) ^ (1, 0) = (1, 6) in register 0,
//   row 0  lane    0 0 1 1 2 2 3 3        and (1, 6) ^ (0, 1) = (1, 7) in register 1: one half of the fragment that
//   row 1          4 4 5 5 6 6 7 7        an `mma` leaves.
//
// What this buys:
// * A basis vector of zero says that the tile does not depend on that bit: lanes or warps then hold copies.
// * Swizzled shared memory is a layout like any other, `offset = [...]`, in which the bits of a row's number enter the
//   column as well. Addresses are formed by the same exclusive or.
// * Going from one layout to another is composing the second with the inverse of the first, Gaussian elimination on a
//   handful of bits. Its result says whether elements stay in their lanes, move within warps, or must pass through
//   shared memory (`Conversion`).
// * A row or column of a tile that is reduced or repeated has the tile's layout with one coordinate dropped (`onto`).
//
// Sides that are no powers of two are padded: a layout covers the padded tile, and what consumes it knows the size.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_DIALECT_KERNEL_LAYOUT_H
#define STRETTO_DIALECT_KERNEL_LAYOUT_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace stretto::kernel {

class Layout {
public:
  /// The numbers that a layout maps to coordinates. Registers, lanes and warps place a tile in registers, offsets (in
  /// elements) in shared memory; a layout has bits of the one or of the other.
  enum Space : unsigned { Register, Lane, Warp, Offset };
  static constexpr unsigned numSpaces = 4;

  /// One value of each number.
  struct Place {
    uint64_t reg = 0, lane = 0, warp = 0;
  };

  Layout() = default;
  /// A layout without bits, of a tile whose coordinates have these numbers of bits.
  explicit Layout(llvm::ArrayRef<unsigned> sideBits) : sideBits(sideBits) {}

  unsigned rank() const { return sideBits.size(); }
  unsigned bitsOf(unsigned side) const { return sideBits[side]; }
  unsigned totalBits() const;
  /// The padded size of a side.
  int64_t side(unsigned index) const { return int64_t(1) << sideBits[index]; }

  /// Coordinates are kept flat, as one number: the last side in the low bits.
  uint64_t flat(llvm::ArrayRef<int64_t> coordinates) const;
  int64_t coordinate(uint64_t flat, unsigned side) const;
  /// The bits of a flat coordinate that belong to a side.
  uint64_t maskOf(unsigned side) const;

  llvm::ArrayRef<uint64_t> basis(Space space) const { return bases[space]; }
  unsigned bits(Space space) const { return bases[space].size(); }
  int64_t size(Space space) const { return int64_t(1) << bits(space); }
  /// Registers are always those of some lanes.
  bool inSharedMemory() const { return bits(Lane) == 0; }

  /// Adds a bit to a space. A vector beyond the padded tile is dropped from registers and offsets, and becomes zero (a
  /// copy) for lanes and warps.
  Layout &add(Space space, llvm::ArrayRef<int64_t> vector);
  Layout &addFlat(Space space, uint64_t vector);
  /// Adds bits that contribute nothing.
  Layout &addCopies(Space space, unsigned count);

  /// The flat coordinate that a number, or a place, contributes.
  uint64_t at(Space space, uint64_t number) const;
  uint64_t at(Place place) const { return at(Register, place.reg) ^ at(Lane, place.lane) ^ at(Warp, place.warp); }
  /// The union of all bits that a space reaches.
  uint64_t reach(Space space) const;

  /// The layout of what is left when all sides but one are dropped; registers that then hold copies are left out.
  Layout onto(unsigned side) const;

  /// Where the elements of a matrix are when its rows and columns change places.
  Layout transposed() const;

  /// For each bit of a flat coordinate, the offset in shared memory. Nothing where the layout is no bijection.
  std::optional<llvm::SmallVector<uint64_t>> offsetsOfCoordinates() const;

  /// `register = [[0, 1]], lane = [...]`, with coordinates as vectors.
  std::string str() const;
  /// The first rows and columns as a table: in each cell `warp:lane:register` of the first holder, or the offset.
  std::string picture(int64_t rows = 16, int64_t columns = 16) const;

  bool operator==(const Layout &other) const = default;

private:
  llvm::SmallVector<unsigned, 2> sideBits;
  std::array<llvm::SmallVector<uint64_t, 8>, numSpaces> bases;
};

/// How elements get from one register layout to another.
struct Conversion {
  enum Kind {
    SameRegisters, // every lane already holds its elements
    Shuffle,       // every warp does
    SharedMemory
  } kind = SharedMemory;

  /// For `SameRegisters` and `Shuffle`: for each bit of the target's register, lane and warp number, what it
  /// contributes to the register and lane that the element comes from (lanes: nothing where they stay).
  struct Source {
    uint64_t reg = 0, lane = 0;
  };
  llvm::SmallVector<Source> fromRegister, fromLane, fromWarp;

  static Conversion between(const Layout &source, const Layout &target);
};

//===----------------------------------------------------------------------===//
// The layouts in use
//===----------------------------------------------------------------------===//

/// The bits that count to at least `size`.
unsigned bitsToCount(int64_t size);

/// The padded bits of a shape: powers of two, at least 16, the side of a fragment; a side of 1 is not padded.
llvm::SmallVector<unsigned, 2> paddedBits(llvm::ArrayRef<int64_t> shape);

/// How the warps of a block divide a matrix: up to four of them its rows, by 16, the others its columns.
struct WarpGrid {
  int64_t rows, columns;
  static WarpGrid of(int64_t rows, int64_t columns, int64_t warps);
  /// For the rows of `kernel.matvec`: those of a matrix that is not transposed are where results have them, others are
  /// divided among as many warps as there are rows for.
  static WarpGrid ofMatvec(int64_t rows, bool transposed, int64_t warps);

  /// How many neighbouring columns of a matrix of `width` a warp has, before those of the next one: its share, or the
  /// largest power of two that divides that.
  int64_t columnsTogether(int64_t width) const;
};

/// Matrices: the fragments in which `mma.m16n8` leaves its result; warps as in `WarpGrid`. Where four of them share
/// the rows, and a warp's columns are neighbours, this is what `wgmma` leaves. Vectors: neighbouring lanes hold
/// neighbouring numbers and every warp has them all. Numbers: everybody has them.
Layout registerLayout(llvm::ArrayRef<int64_t> shape, int64_t warps);

/// The same for what products of warpgroups leave, of 64 rows and any number of columns by the eight. A matrix whose
/// columns are a multiple of 64, and whose rows are neither that nor a power of two, as the slots of a state may be,
/// lies across: it is the transpose of what a product of the transposed operands leaves. So does one of 32 rows whose
/// columns several warpgroups divide: all tokens of a channel are then in four lanes. Where a warpgroup's share of
/// the columns would be in pieces, or with `rowsApart`, each has all of them and rows of its own; where there are not
/// rows enough, and the pieces are of eight columns, all of both.
Layout warpgroupLayout(llvm::ArrayRef<int64_t> shape, int64_t warps, bool rowsApart = false);

/// Whether a matrix lies across: in fragments of its transpose.
bool liesAcross(const Layout &layout);

/// Matrices put together from matrices of one layout, one after another along the columns: each thread has its elements
/// of all of them.
Layout sideBySide(const Layout &part, llvm::ArrayRef<int64_t> shape);

/// Where a walk over the entries of a matrix has them: each lane `perAccess` neighbouring columns, neighbouring lanes
/// those of a cache line, other lanes and warps other rows, registers what is left. A row, and a vector, lies in every
/// warp, so that what is computed with it needs no other.
Layout sweepLayout(llvm::ArrayRef<int64_t> shape, int64_t perAccess, int64_t warps);

/// Where each thread walks down columns: it has runs of rows that follow one another, of two neighbouring columns, and
/// neighbouring lanes have neighbouring columns. A result that is made of some rows before its own, as that of a
/// convolution, then takes most of them from the same thread.
Layout runLayout(llvm::ArrayRef<int64_t> shape, int64_t warps);

/// Where each warp has rows of its own: a lane four neighbouring columns, neighbouring lanes neighbouring ones, and
/// registers rows that are as many apart as warps have. What is made number by number of rows in shared memory, and of
/// others there, then takes few accesses, at addresses that differ by what is known.
Layout rowsLayout(llvm::ArrayRef<int64_t> shape, int64_t warps);

/// Where threads add up what the taps of channels get: a row is a channel, and a column a tap. Lanes have neighbouring
/// rows, warps other rows and then columns, registers what is left.
Layout tapsLayout(llvm::ArrayRef<int64_t> shape, int64_t warps);

/// The fragments of the left operand of `mma.m16n8k16` for a result whose warps stand in `grid`.
Layout leftOperandLayout(int64_t rows, int64_t inner, WarpGrid grid);

/// The numbers of a vector that a thread gives where the vector is every column of a right operand of `mma.m16n8k16`.
Layout rightVectorLayout(int64_t inner, int64_t warps);

/// The sums of `kernel.matvec`: the rows of fragments, of which all columns are the same.
Layout matvecLayout(int64_t rows, bool transposed, int64_t warps);

/// How many neighbouring columns the lowest registers of a thread hold, as a power of two.
int64_t neighbouringColumns(const Layout &layout);

/// The rows that the warps which divide them, with all lanes and lower registers, hold in one block: those of higher
/// register bits follow in further blocks.
int64_t rowsWithinWarps(const Layout &layout);

/// How a block copies a tile from global memory: each lane `perAccess` neighbouring elements, lanes along rows first.
Layout copyLayout(llvm::ArrayRef<int64_t> shape, int64_t perAccess, int64_t warps);

/// The same elements in each warp, but each lane with `perAccess` neighbouring columns, lanes along rows first; nothing
/// where warps have copies, or not each the same part of both sides.
std::optional<Layout> alongRows(const Layout &layout, int64_t perAccess);

/// Shared memory by rows. The 16-byte pieces of neighbouring rows are exchanged, so that eight rows of one column
/// of pieces, which is what `ldmatrix` reads, lie in different banks. Matrices lie in boxes of up to 128 bytes of
/// columns, one after another: with the same exchange, these are the tiles of `wgmma` and the boxes of a bulk copy
/// (128-byte swizzle; 64 and 32 bytes where a matrix is as narrow), if they begin at a multiple of `sharedAlignment`.
inline constexpr int64_t sharedAlignment = 1024;
/// The bytes that all banks of shared memory have side by side.
inline constexpr int64_t bytesOfBanks = 128;
Layout sharedLayout(llvm::ArrayRef<int64_t> shape, int64_t bytesPerElement);

} // namespace stretto::kernel

#endif // STRETTO_DIALECT_KERNEL_LAYOUT_H
