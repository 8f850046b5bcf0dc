#include "frontends/c/stretto.h"

int main(int argc, char **argv) { return strettoOptMain(argc, argv); }
