//===- Tools.cpp - The command-line tools ---------------------------------===//

#include "frontends/c/Registration.h"
#include "frontends/c/stretto.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Tools/mlir-translate/MlirTranslateMain.h"

int strettoOptMain(int argc, char **argv) {
  mlir::DialectRegistry registry;
  stretto::registerDialects(registry);
  stretto::registerPassesAndPipelines();
  return mlir::failed(mlir::MlirOptMain(argc, argv, "stretto's modular optimiser driver\n", registry));
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
