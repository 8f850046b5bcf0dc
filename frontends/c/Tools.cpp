//===- Tools.cpp - The command-line tools ---------------------------------===//

#include "frontends/c/Registration.h"
#include "frontends/c/SourceLimits.h"
#include "frontends/c/stretto.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Tools/mlir-translate/MlirTranslateMain.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Support/raw_ostream.h"

/// Reads a file, or standard input for "-". Parts that `splitMarker` separates are read one by one, as MLIR does; in
/// place of those that the parser cannot bear stand empty lines, and `refused` is set.
static std::unique_ptr<llvm::MemoryBuffer> readSource(llvm::StringRef path, llvm::StringRef splitMarker,
                                                      bool &refused) {
  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> input = mlir::openInputFile(path, &message);
  if (!input) {
    llvm::errs() << message << "\n";
    return nullptr;
  }
  if (mlir::isBytecode(input->getMemBufferRef()))
    return input;
  llvm::SmallVector<llvm::StringRef> parts{input->getBuffer()};
  if (!splitMarker.empty())
    parts.pop_back_val().split(parts, splitMarker);
  std::vector<std::string> accepted;
  size_t line = 1;
  for (llvm::StringRef part : parts) {
    if (llvm::Error error = stretto::checkSource(part, line)) {
      llvm::errs() << input->getBufferIdentifier() << ": " << llvm::toString(std::move(error)) << "\n";
      accepted.emplace_back(part.count('\n'), '\n');
      refused = true;
    } else {
      accepted.push_back(part.str());
    }
    line += part.count('\n');
  }
  if (!refused)
    return input;
  return llvm::MemoryBuffer::getMemBufferCopy(llvm::join(accepted, splitMarker), input->getBufferIdentifier());
}

int strettoOptMain(int argc, char **argv) {
  llvm::InitLLVM process(argc, argv);
  mlir::DialectRegistry registry;
  stretto::registerDialects(registry);
  stretto::registerPassesAndPipelines();
  auto [input, output] = mlir::registerAndParseCLIOptions(argc, argv, "stretto's modular optimiser driver\n", registry);
  mlir::MlirOptMainConfig config = mlir::MlirOptMainConfig::createFromCLOptions();
  if (config.shouldShowDialects() || config.shouldListPasses())
    return mlir::failed(mlir::MlirOptMain(argc, argv, input, output, registry));

  bool refused = false;
  std::unique_ptr<llvm::MemoryBuffer> source = readSource(input, config.inputSplitMarker(), refused);
  if (!source)
    return 1;
  std::string message;
  std::unique_ptr<llvm::ToolOutputFile> target = mlir::openOutputFile(output, &message);
  if (!target) {
    llvm::errs() << message << "\n";
    return 1;
  }
  if (mlir::failed(mlir::MlirOptMain(target->os(), std::move(source), registry, config)))
    return 1;
  target->keep();
  return refused;
}

int strettoTranslateMain(int argc, char **argv) {
  stretto::registerTranslations();
  return mlir::failed(mlir::mlirTranslateMain(argc, argv, "stretto's translations\n"));
}

int strettoLspServerMain(int argc, char **argv) {
  mlir::DialectRegistry registry;
  stretto::registerDialects(registry);
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
