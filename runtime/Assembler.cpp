//===- Assembler.cpp - From PTX to the code of a chip ---------------------===//

#include "runtime/Assembler.h"
#include "runtime/Knobs.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include <optional>
#include <tuple>

using namespace stretto;

const Assembler *Assembler::instance() {
  static const Assembler assembler(Knobs::instance().assembler);
  return assembler.program.empty() ? nullptr : &assembler;
}

static std::string read(llvm::StringRef path) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  return file ? (*file)->getBuffer().str() : "";
}

llvm::Expected<std::string> Assembler::assemble(llvm::StringRef ptx, llvm::StringRef chip) const {
  llvm::SmallString<128> folder;
  if (std::error_code error = llvm::sys::fs::createUniqueDirectory("stretto", folder))
    return llvm::createStringError(error, "no folder for " + program);
  auto clear = llvm::make_scope_exit([&] { std::ignore = llvm::sys::fs::remove_directories(folder); });
  // What is read there will run.
  if (std::error_code error = llvm::sys::fs::setPermissions(folder, llvm::sys::fs::owner_all))
    return llvm::createStringError(error, "the folder for " + program + " cannot be closed to others");
  auto in = [&](llvm::StringRef name) {
    llvm::SmallString<128> path = folder;
    llvm::sys::path::append(path, name);
    return path.str().str();
  };
  std::string source = in("kernel.ptx"), code = in("kernel.cubin"), log = in("log");
  {
    std::error_code error;
    llvm::raw_fd_ostream stream(source, error);
    stream << ptx;
    stream.close();
    if (!error)
      error = stream.error();
    stream.clear_error();
    if (error)
      return llvm::createStringError(error, "PTX for " + program + " cannot be written");
  }
  std::string problem, architecture = "-arch=" + chip.str();
  std::optional<llvm::StringRef> redirects[] = {"", log, log};
  int status = llvm::sys::ExecuteAndWait(program, {program, architecture, source, "-o", code}, /*Env=*/std::nullopt,
                                         redirects, /*SecondsToWait=*/0, /*MemoryLimit=*/0, &problem);
  std::string result = read(code);
  if (status != 0 || !isAssembled(result))
    return llvm::createStringError("%s returns %d (%s)", program.c_str(), status,
                                   (problem.empty() ? read(log) : problem).c_str());
  return result;
}
