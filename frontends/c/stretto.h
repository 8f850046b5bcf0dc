/* stretto.h - the C interface of libstretto.so, the only symbols it exports. */
#ifndef STRETTO_FRONTENDS_C_STRETTO_H
#define STRETTO_FRONTENDS_C_STRETTO_H

#define STRETTO_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* The command-line tools. */
STRETTO_EXPORT int strettoOptMain(int argc, char **argv);
STRETTO_EXPORT int strettoTranslateMain(int argc, char **argv);
STRETTO_EXPORT int strettoLspServerMain(int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif /* STRETTO_FRONTENDS_C_STRETTO_H */
