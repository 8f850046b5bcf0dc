//===- LowerWarpgroups.cpp - Instructions of warpgroups for NVPTX ---------===//

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "passes/Passes.h"
#include "llvm/Support/FormatVariadic.h"

namespace stretto {
#define GEN_PASS_DEF_LOWERWARPGROUPS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// The text of an inline assembly and its operands, whose numbers are those of results, inputs and sums, in this order.
class Assembly {
public:
  explicit Assembly(size_t results) : results(results) {}

  /// An operand of the text.
  std::string input(Value value, StringRef constraint) {
    inputs.push_back(value);
    constraints += "," + constraint.str();
    return llvm::formatv("${0}", results + inputs.size() - 1);
  }
  /// Numbers that are in the registers of the results.
  void tie(ValueRange sums) {
    for (auto [index, sum] : llvm::enumerate(sums)) {
      inputs.push_back(sum);
      constraints += llvm::formatv(",{0}", index);
    }
  }
  llvm::raw_ostream &operator<<(StringRef line) { return text << line; }

  /// Puts the assembly in the place of `op`.
  void replace(Operation *op) {
    ImplicitLocOpBuilder b(op->getLoc(), op);
    std::string outputs;
    for (size_t index = 0; index < results; ++index)
      outputs += index ? ",=f" : "=f";
    auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(op->getResultTypes()));
    auto dialect = LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT);
    auto assembly = LLVM::InlineAsmOp::create(b, type, inputs, buffer, outputs + constraints, /*has_side_effects=*/true,
                                              /*is_align_stack=*/false, LLVM::TailCallKind::None, dialect, ArrayAttr());
    for (auto [index, result] : llvm::enumerate(op->getResults()))
      result.replaceAllUsesWith(LLVM::ExtractValueOp::create(b, assembly.getRes(), index));
    op->erase();
  }

private:
  size_t results;
  SmallVector<Value> inputs;
  std::string constraints, buffer;
  llvm::raw_string_ostream text{buffer};
};

/// `{$first, ...}`.
std::string list(ArrayRef<std::string> names) { return "{" + llvm::join(names, ", ") + "}"; }

void lower(WarpgroupProductOp op) {
  constexpr size_t wordsOfStep = 4;
  Assembly text(op.getNumResults());
  std::string left = op.getLeft() ? text.input(op.getLeft(), "l") : "";
  SmallVector<std::string> words;
  for (Value word : op.getLeftWords())
    words.push_back(text.input(word, "r"));
  std::string right = text.input(op.getRight(), "l");
  text.tie(op.getSums());

  size_t blocks = op.getBlocks(), ofBlock = op.getColumns() / 2, steps = op.getLeftOffsets().size() / blocks;
  StringRef element = op.getElement().isF16() ? "f16" : "bf16";
  std::string instruction =
      llvm::formatv("\twgmma.mma_async.sync.aligned.m64n{0}k16.f32.{1}.{1} ", op.getColumns(), element);
  bool startsAtZero = op.getSums().empty();
  text << "{\n\t.reg .pred add;\n\t.reg .b64 left, right;\n"
       << "\twgmma.fence.sync.aligned;\n";
  for (size_t step = 0; step < steps; ++step)
    for (size_t block = 0; block < blocks; ++block) {
      size_t place = block * steps + step;
      int64_t leftOffset = op.getLeftOffsets()[place], rightOffset = op.getRightOffsets()[place];
      SmallVector<std::string> sums;
      for (size_t index = 0; index < ofBlock; ++index)
        sums.push_back(llvm::formatv("${0}", block * ofBlock + index));
      // Only the first step may begin at zero.
      if (step < 2 && block == 0)
        text << llvm::formatv("\tsetp.ne.b32 add, {0}, 0;\n", startsAtZero && step == 0 ? 0 : 1).str();
      if (op.getLeft())
        text << llvm::formatv("\tadd.s64 left, {0}, {1};\n", left, leftOffset).str();
      text << llvm::formatv("\tadd.s64 right, {0}, {1};\n", right, rightOffset).str();
      std::string leftOperand = op.getLeft() ? "left" : list(ArrayRef(words).slice(leftOffset, wordsOfStep));
      text << instruction << list(sums) << ", " << leftOperand << ", right, add, 1, 1, ";
      if (op.getLeft())
        text << (op.getTransposeLeft() ? "1, " : "0, ");
      text << (op.getTransposeRight() ? "1;\n" : "0;\n");
    }
  text << "\twgmma.commit_group.sync.aligned;\n\t}";
  text.replace(op);
}

void lower(WarpgroupWaitOp op) {
  Assembly text(op.getNumResults());
  text.tie(op.getSums());
  text << llvm::formatv("wgmma.wait_group.sync.aligned {0};", op.getPending()).str();
  text.replace(op);
}

struct LowerWarpgroups : stretto::impl::LowerWarpgroupsBase<LowerWarpgroups> {
  void runOnOperation() override {
    getOperation()->walk([](WarpgroupProductOp op) { lower(op); });
    getOperation()->walk([](WarpgroupWaitOp op) { lower(op); });
  }
};
} // namespace
