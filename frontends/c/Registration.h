//===- Registration.h - What the compiler brings into a context -*- C++ -*-===//
#ifndef STRETTO_FRONTENDS_C_REGISTRATION_H
#define STRETTO_FRONTENDS_C_REGISTRATION_H

namespace mlir {
class DialectRegistry;
}

namespace stretto {
void registerDialects(mlir::DialectRegistry &registry);
void registerPassesAndPipelines();
void registerTranslations();
} // namespace stretto

#endif // STRETTO_FRONTENDS_C_REGISTRATION_H
