/*
 * User-mode Linux 6.1 sets the floating point registers of its processes with a buffer
 * of the size that it knows. A host whose processor has more of them (AMX) refuses that:
 * it takes all or none (EFAULT). Preloaded, this adds the rest as it is.
 *
 *	gcc -shared -fPIC -o fpregs.so fpregs.c && LD_PRELOAD=./fpregs.so linux.uml ...
 */
#define _GNU_SOURCE
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

long ptrace(enum __ptrace_request request, ...)
{
	va_list args;
	va_start(args, request);
	pid_t pid = va_arg(args, pid_t);
	void *addr = va_arg(args, void *), *data = va_arg(args, void *);
	va_end(args);

	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
		long word = 0; /* the system call stores what the function returns */
		long failed = syscall(SYS_ptrace, request, pid, addr, &word);
		return failed < 0 ? failed : word;
	}
	if (request == PTRACE_SETREGSET && (long)addr == NT_X86_XSTATE) {
		static char buffer[1 << 16];
		struct iovec *given = data, all = {buffer, sizeof buffer};
		if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, addr, &all) == 0 && all.iov_len > given->iov_len) {
			memcpy(buffer, given->iov_base, given->iov_len);
			return syscall(SYS_ptrace, request, pid, addr, &all);
		}
	}
	return syscall(SYS_ptrace, request, pid, addr, data);
}
