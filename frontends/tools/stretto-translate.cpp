#include "frontends/c/stretto.h"

int main(int argc, char **argv) { return strettoTranslateMain(argc, argv); }
