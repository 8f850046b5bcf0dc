//===- Elementwise.cpp - What each thread computes on its own -------------===//

#include "ThreadBlock.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace stretto::simulator;

Action ThreadBlock::compileIntrinsic(LLVM::CallIntrinsicOp op) {
  StringRef name = op.getIntrin();
  Operation *operation = op;
  if (name == "llvm.nvvm.div.full.ftz")
    return real(operation, [](auto x) { return x(0) / x(1); });
  if (name == "llvm.nvvm.rsqrt.approx.ftz.f")
    return real(operation, [](auto x) { return 1 / std::sqrt(x(0)); });
  if (name == "llvm.nvvm.barrier.cta.red.or.aligned.count") {
    Slot condition = slotOf(op.getArgs()[2]), result = slotOf(op.getResult(0));
    return [=, this] {
      mustConverge(operation);
      memory.barrier();
      bool any = std::any_of(condition.words, condition.words + threads, [](uint64_t word) { return word & 1; });
      std::fill_n(result.words, threads, any);
    };
  }
  fail(operation, "an intrinsic that the simulator does not know");
}

/// Without results it waits for loads, which are done; else it is a copy.
Action ThreadBlock::compileAssembly(LLVM::InlineAsmOp op) {
  if (!op->getNumResults())
    return {};
  if (op.getAsmString() != "mov.b32 $0, $1;")
    fail(op, "an instruction that the simulator does not know");
  Slot source = slotOf(op->getOperand(0)), result = slotOf(op->getResult(0));
  return [=, this] { std::copy_n(source.words, threads, result.words); };
}

static bool ordered(arith::CmpFPredicate predicate) { return static_cast<int>(predicate) < 8; }

static bool compareReal(arith::CmpFPredicate predicate, double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return predicate == arith::CmpFPredicate::AlwaysTrue ||
           (!ordered(predicate) && predicate != arith::CmpFPredicate::AlwaysFalse);
  switch (predicate) {
  case arith::CmpFPredicate::OEQ:
  case arith::CmpFPredicate::UEQ:
    return a == b;
  case arith::CmpFPredicate::OGT:
  case arith::CmpFPredicate::UGT:
    return a > b;
  case arith::CmpFPredicate::OGE:
  case arith::CmpFPredicate::UGE:
    return a >= b;
  case arith::CmpFPredicate::OLT:
  case arith::CmpFPredicate::ULT:
    return a < b;
  case arith::CmpFPredicate::OLE:
  case arith::CmpFPredicate::ULE:
    return a <= b;
  case arith::CmpFPredicate::ONE:
  case arith::CmpFPredicate::UNE:
    return a != b;
  case arith::CmpFPredicate::ORD:
  case arith::CmpFPredicate::AlwaysTrue:
    return true;
  case arith::CmpFPredicate::UNO:
  case arith::CmpFPredicate::AlwaysFalse:
    return false;
  }
  return false;
}

static double maximum(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }
static double minimum(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b); }

Action ThreadBlock::compile(Operation *op) {
  if (op->getName().getStringRef() == "kernel.warpgroup_product")
    return compileWarpgroupProduct(op);
  if (op->getName().getStringRef() == "kernel.warpgroup_wait")
    return compileWarpgroupWait(op);
  return llvm::TypeSwitch<Operation *, Action>(op)
      .Case([&](scf::ForOp op) { return compileFor(op); })
      .Case([&](scf::WhileOp op) { return compileWhile(op); })
      .Case([&](scf::IfOp op) { return compileIf(op); })
      .Case([&](NVVM::MBarrierInitOp op) { return compileBarrierInit(op); })
      .Case([&](NVVM::MBarrierArriveExpectTxOp op) { return compileExpect(op); })
      .Case([&](NVVM::MBarrierArriveOp op) { return compileArrive(op); })
      .Case([&](NVVM::MBarrierTryWaitParityOp op) { return compileBarrierWait(op); })
      .Case([&](NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp op) { return compileBox(op); })
      .Case([&](NVVM::CpAsyncBulkGlobalToSharedClusterOp op) { return compileBulkLoad(op); })
      .Case([&](NVVM::CpAsyncBulkSharedCTAToGlobalOp op) { return compileBulkStore(op); })
      .Case([&](NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp op) { return compileBoxStore(op); })
      .Case([&](NVVM::MBarrierInvalOp op) { return compileBarrierEnd(op); })
      .Case<scf::YieldOp, scf::ConditionOp, LLVM::ReturnOp, NVVM::FenceMbarrierInitOp, NVVM::SetMaxRegisterOp,
            NVVM::GriddepcontrolOp, NVVM::CpAsyncBulkCommitGroupOp>([&](auto) { return Action(); })
      .Case([&](NVVM::CpAsyncBulkWaitGroupOp op) { return compileBulkWait(op); })
      .Case([&](LLVM::InlineAsmOp op) { return compileAssembly(op); })
      .Case([&](LLVM::LoadOp op) { return compileLoad(op); })
      .Case([&](LLVM::StoreOp op) { return compileStore(op); })
      .Case([&](NVVM::CpAsyncOp op) { return compileCopy(op); })
      .Case([&](NVVM::CpAsyncCommitGroupOp) { return [this] { memory.commitCopies(); }; })
      .Case([&](NVVM::CpAsyncWaitGroupOp op) { return [this, pending = op.getN()] { memory.finishCopies(pending); }; })
      .Case([&](NVVM::FenceProxyOp) { return [this] { memory.fence(); }; })
      .Case([&](NVVM::LdMatrixOp op) { return compileLoadMatrix(op); })
      .Case([&](NVVM::StMatrixOp op) { return compileStoreMatrix(op); })
      .Case([&](NVVM::SyncWarpOp op) { return [this] { memory.barrierOfWarps(); }; })
      .Case([&](NVVM::MmaOp op) { return compileMultiply(op); })
      .Case([&](NVVM::ShflOp op) { return compileShuffle(op); })
      .Case([&](NVVM::BarrierOp op) { return compileBarrier(op); })
      .Case([&](LLVM::CallIntrinsicOp op) { return compileIntrinsic(op); })
      .Case([&](NVVM::ThreadIdXOp op) {
        Slot result = slotOf(op.getResult());
        return [=, this] {
          for (int thread = 0; thread < threads; ++thread)
            result.words[thread] = firstThread + thread;
        };
      })
      .Case([&](NVVM::BlockIdXOp op) {
        Slot result = slotOf(op.getResult());
        return [=, this] { std::fill_n(result.words, threads, number); };
      })
      .Case([&](LLVM::AddressOfOp op) {
        Slot result = slotOf(op.getResult());
        return [=, this] { std::fill_n(result.words, threads, sharedAddress); };
      })
      .Case([&](arith::ConstantOp op) {
        Slot result = slotOf(op.getResult());
        uint64_t bits = isa<FloatAttr>(op.getValue())
                            ? cast<FloatAttr>(op.getValue()).getValue().bitcastToAPInt().getZExtValue()
                            : cast<IntegerAttr>(op.getValue()).getValue().getZExtValue();
        return [=, this] { std::fill_n(result.words, threads, bits); };
      })
      .Case([&](LLVM::PoisonOp op) {
        slotOf(op.getResult());
        return Action();
      })
      .Case([&](LLVM::GEPOp op) {
        Slot base = slotOf(op.getBase()), result = slotOf(op.getResult());
        bool dynamic = !op.getDynamicIndices().empty();
        Slot index = dynamic ? slotOf(op.getDynamicIndices()[0]) : Slot();
        unsigned width = dynamic ? widthOf(op.getDynamicIndices()[0].getType()) : 64;
        int64_t constant = dynamic ? 0 : op.getRawConstantIndices()[0];
        return [=, this] {
          for (int thread = 0; thread < threads; ++thread)
            result.words[thread] = base.words[thread] + (dynamic ? asSigned(index.words[thread], width) : constant);
        };
      })
      .Case([&](LLVM::InsertElementOp op) {
        Slot vector = slotOf(op.getVector()), value = slotOf(op.getValue()), position = slotOf(op.getPosition()),
             result = slotOf(op.getResult());
        return [=, this] {
          std::copy_n(vector.words, vector.components * threads, result.words);
          std::copy_n(value.words, threads, result.words + position.words[0] * threads);
        };
      })
      .Case([&](LLVM::ExtractElementOp op) {
        Slot vector = slotOf(op.getVector()), position = slotOf(op.getPosition()), result = slotOf(op.getResult());
        return [=, this] { std::copy_n(vector.words + position.words[0] * threads, threads, result.words); };
      })
      .Case([&](LLVM::ExtractValueOp op) {
        Slot whole = slotOf(op.getContainer()), result = slotOf(op.getResult());
        int64_t position = op.getPosition()[0];
        return [=, this] { std::copy_n(whole.words + position * threads, threads, result.words); };
      })
      .Case([&](LLVM::BitcastOp op) {
        // Words to pairs of 16 bits and back.
        Slot source = slotOf(op.getArg()), result = slotOf(op.getResult());
        return [=, this] {
          for (int thread = 0; thread < threads; ++thread) {
            uint64_t word = source.components == 2 ? source.words[thread] | source.words[threads + thread] << 16
                                                   : source.words[thread];
            result.words[thread] = result.components == 2 ? word & 0xffff : word;
            if (result.components == 2)
              result.words[threads + thread] = word >> 16 & 0xffff;
          }
        };
      })
      .Case([&](LLVM::UMaxOp op) {
        // Of pairs of 16 bits, each by itself.
        Slot a = slotOf(op.getA()), b = slotOf(op.getB()), result = slotOf(op.getResult());
        return [=, this] {
          for (int word = 0; word < result.components * threads; ++word)
            result.words[word] = std::max(a.words[word], b.words[word]);
        };
      })
      .Case<LLVM::IntToPtrOp, LLVM::PtrToIntOp, LLVM::AddrSpaceCastOp, arith::BitcastOp>(
          [&](auto op) { return perThread(op, [](auto x) { return x(0); }); })
      .Case([&](arith::SelectOp op) { return perThread(op, [](auto x) { return x(0) & 1 ? x(1) : x(2); }); })
      .Case([&](arith::AddIOp op) { return integer(op, [](auto x) { return x(0) + x(1); }); })
      .Case([&](arith::SubIOp op) { return integer(op, [](auto x) { return x(0) - x(1); }); })
      .Case([&](arith::MulIOp op) { return integer(op, [](auto x) { return x(0) * x(1); }); })
      .Case([&](arith::DivUIOp op) { return integer(op, [](auto x) { return x(1) ? x(0) / x(1) : 0; }); })
      .Case([&](arith::RemUIOp op) { return integer(op, [](auto x) { return x(1) ? x(0) % x(1) : 0; }); })
      .Case([&](arith::MaxUIOp op) { return integer(op, [](auto x) { return std::max(x(0), x(1)); }); })
      .Case([&](arith::AndIOp op) { return integer(op, [](auto x) { return x(0) & x(1); }); })
      .Case([&](arith::OrIOp op) { return integer(op, [](auto x) { return x(0) | x(1); }); })
      .Case([&](arith::XOrIOp op) { return integer(op, [](auto x) { return x(0) ^ x(1); }); })
      .Case([&](arith::ShLIOp op) { return integer(op, [](auto x) { return x(0) << x(1); }); })
      .Case([&](arith::ShRUIOp op) { return integer(op, [](auto x) { return x(0) >> x(1); }); })
      .Case<arith::ExtUIOp, arith::TruncIOp>([&](auto op) { return integer(op, [](auto x) { return x(0); }); })
      .Case<arith::ShRSIOp, arith::MaxSIOp, arith::MinSIOp, arith::ExtSIOp>([&](auto op) {
        Operation *operation = op;
        unsigned width = widthOf(operation->getOperand(0).getType());
        return integer(operation, [=](auto x) -> uint64_t {
          int64_t a = asSigned(x(0), width);
          if (isa<arith::ExtSIOp>(operation))
            return a;
          int64_t b = asSigned(x(1), width);
          return isa<arith::ShRSIOp>(operation)   ? a >> b
                 : isa<arith::MaxSIOp>(operation) ? std::max(a, b)
                                                  : std::min(a, b);
        });
      })
      .Case([&](arith::CmpIOp op) {
        unsigned width = widthOf(op.getLhs().getType());
        arith::CmpIPredicate predicate = op.getPredicate();
        return perThread(op, [=](auto x) -> uint64_t {
          return arith::applyCmpPredicate(predicate, llvm::APInt(width, x(0)), llvm::APInt(width, x(1)));
        });
      })
      .Case([&](arith::CmpFOp op) {
        Format type = formatOf(getElementTypeOrSelf(op.getLhs()));
        arith::CmpFPredicate predicate = op.getPredicate();
        return perThread(
            op, [=](auto x) -> uint64_t { return compareReal(predicate, widen(x(0), type), widen(x(1), type)); });
      })
      .Case([&](arith::SIToFPOp op) {
        unsigned width = widthOf(op.getIn().getType());
        Format type = formatOf(getElementTypeOrSelf(op.getType()));
        return perThread(op, [=](auto x) { return narrow(static_cast<double>(asSigned(x(0), width)), type); });
      })
      .Case([&](arith::FPToSIOp op) {
        Format type = formatOf(getElementTypeOrSelf(op.getIn()));
        return integer(op, [=](auto x) { return static_cast<uint64_t>(static_cast<int64_t>(widen(x(0), type))); });
      })
      .Case<arith::ExtFOp, arith::TruncFOp>([&](auto op) { return real(op, [](auto x) { return x(0); }); })
      .Case([&](arith::AddFOp op) { return real(op, [](auto x) { return x(0) + x(1); }); })
      .Case([&](arith::SubFOp op) { return real(op, [](auto x) { return x(0) - x(1); }); })
      .Case([&](arith::MulFOp op) { return real(op, [](auto x) { return x(0) * x(1); }); })
      .Case<arith::DivFOp, LLVM::FDivOp>([&](auto op) { return real(op, [](auto x) { return x(0) / x(1); }); })
      .Case([&](arith::RemFOp op) { return real(op, [](auto x) { return std::fmod(x(0), x(1)); }); })
      .Case([&](arith::NegFOp op) { return real(op, [](auto x) { return -x(0); }); })
      .Case([&](arith::MaximumFOp op) { return real(op, [](auto x) { return maximum(x(0), x(1)); }); })
      .Case([&](arith::MinimumFOp op) { return real(op, [](auto x) { return minimum(x(0), x(1)); }); })
      .Case([&](arith::MaxNumFOp op) { return real(op, [](auto x) { return std::fmax(x(0), x(1)); }); })
      .Case([&](arith::MinNumFOp op) { return real(op, [](auto x) { return std::fmin(x(0), x(1)); }); })
      .Case([&](math::ExpOp op) { return real(op, [](auto x) { return std::exp(x(0)); }); })
      .Case<math::Exp2Op, LLVM::Exp2Op>([&](auto op) { return real(op, [](auto x) { return std::exp2(x(0)); }); })
      .Case([&](math::LogOp op) { return real(op, [](auto x) { return std::log(x(0)); }); })
      .Case([&](math::Log1pOp op) { return real(op, [](auto x) { return std::log1p(x(0)); }); })
      .Case<math::SqrtOp, LLVM::SqrtOp>([&](auto op) { return real(op, [](auto x) { return std::sqrt(x(0)); }); })
      .Case([&](math::RsqrtOp op) { return real(op, [](auto x) { return 1 / std::sqrt(x(0)); }); })
      .Case<math::AbsFOp, LLVM::FAbsOp>([&](auto op) { return real(op, [](auto x) { return std::fabs(x(0)); }); })
      .Case([&](math::TanhOp op) { return real(op, [](auto x) { return std::tanh(x(0)); }); })
      .Case([&](math::SinOp op) { return real(op, [](auto x) { return std::sin(x(0)); }); })
      .Case([&](math::CosOp op) { return real(op, [](auto x) { return std::cos(x(0)); }); })
      .Case<math::FloorOp, LLVM::FFloorOp>([&](auto op) { return real(op, [](auto x) { return std::floor(x(0)); }); })
      .Case([&](LLVM::FTruncOp op) { return real(op, [](auto x) { return std::trunc(x(0)); }); })
      .Case<math::RoundEvenOp, LLVM::RoundEvenOp>(
          [&](auto op) { return real(op, [](auto x) { return std::nearbyint(x(0)); }); })
      .Case([&](math::PowFOp op) { return real(op, [](auto x) { return std::pow(x(0), x(1)); }); })
      .Case<math::FmaOp, LLVM::FMAOp>(
          [&](auto op) { return real(op, [](auto x) { return std::fma(x(0), x(1), x(2)); }); })
      .Case([&](LLVM::CopySignOp op) { return real(op, [](auto x) { return std::copysign(x(0), x(1)); }); })
      .Default([&](Operation *op) -> Action { fail(op, "an operation that the simulator does not know"); });
}
