/* Runs Python inside a program that is not called so.
 *
 *     embed [LIBRARY] PROGRAM ARGUMENTS...
 *
 * Built with -DLINKED the interpreter is linked in (as a shared library); else LIBRARY is opened
 * late, when the process already has a thread of its own, so that the thread-local variables of
 * the interpreter cannot lie where those of the start do.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#ifdef LINKED
int Py_BytesMain(int argc, char **argv);
#else
static void *wait_for_ever(void *unused)
{
    for (;;)
        pause();
    return unused;
}
#endif

int main(int argc, char **argv)
{
#ifdef LINKED
    return Py_BytesMain(argc, argv);
#else
    pthread_t thread;
    if (argc < 3 || pthread_create(&thread, NULL, wait_for_ever, NULL) != 0)
        return 2;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    int (*run)(int, char **) = (int (*)(int, char **))dlsym(library, "Py_BytesMain");
    argv[1] = argv[0];
    return run == NULL ? 4 : run(argc - 1, argv + 1);
#endif
}
