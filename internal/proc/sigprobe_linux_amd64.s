#include "textflag.h"

// func probeAddress() uintptr
TEXT ·probeAddress(SB), NOSPLIT, $0-8
	LEAQ probe<>(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// probe is a signal handler. The kernel calls it with the signal in DI, its
// siginfo_t in SI and the context in DX. It counts the signal by origin and goes
// on to the handler that was there before.
TEXT probe<>(SB), NOSPLIT|NOFRAME|TOPFRAME, $0-0
	LEAQ ·fromKernel(SB), CX
	CMPL 8(SI), $0x80 // si_code, SI_KERNEL
	JEQ  count
	LEAQ ·fromProcess(SB), CX

count:
	MOVL DI, R8
	LOCK
	INCL (CX)(R8*4)
	MOVQ ·nextHandler(SB), CX
	JMP  CX
