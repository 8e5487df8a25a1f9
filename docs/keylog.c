/* Writes a key log of TLS connections for programs that have no setting for it and that load OpenSSL 1.1.1 or
   newer as a shared library, such as librdkafka of a Linux distribution:

       cc -shared -fPIC -O2 -o keylog.so keylog.c -lssl -ldl
       SSLKEYLOGFILE=/run/user/1000/keys LD_PRELOAD=$PWD/keylog.so kcat -b broker:9093 -X security.protocol=ssl -L

   Linked with libssl although it looks its functions up: so it stands in front of them also where the program
   loads OpenSSL later and for itself, as an extension module of Python does. Without SSLKEYLOGFILE it does nothing. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

/* One write for a whole line: lines of several threads and processes do not mix. */
static void log_line(const SSL *ssl, const char *line)
{
    struct iovec parts[] = {{(void *)line, 0}, {"\n", 1}};
    int file = open(getenv("SSLKEYLOGFILE"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

    (void)ssl;
    while (line[parts[0].iov_len])
        parts[0].iov_len++;
    if (file >= 0) {
        ssize_t written = writev(file, parts, 2);
        (void)written;
        close(file);
    }
}

static SSL_CTX *with_log(SSL_CTX *context)
{
    if (context && getenv("SSLKEYLOGFILE"))
        SSL_CTX_set_keylog_callback(context, log_line);
    return context;
}

SSL_CTX *SSL_CTX_new(const SSL_METHOD *method)
{
    SSL_CTX *(*next)(const SSL_METHOD *) = (SSL_CTX *(*)(const SSL_METHOD *))dlsym(RTLD_NEXT, "SSL_CTX_new");
    return next ? with_log(next(method)) : NULL;
}

#if OPENSSL_VERSION_NUMBER >= 0x30000000L
SSL_CTX *SSL_CTX_new_ex(OSSL_LIB_CTX *library, const char *properties, const SSL_METHOD *method)
{
    SSL_CTX *(*next)(OSSL_LIB_CTX *, const char *, const SSL_METHOD *) =
        (SSL_CTX *(*)(OSSL_LIB_CTX *, const char *, const SSL_METHOD *))dlsym(RTLD_NEXT, "SSL_CTX_new_ex");
    return next ? with_log(next(library, properties, method)) : NULL;
}
#endif
