#include "textflag.h"

// func probeAddress() uintptr
TEXT ·probeAddress(SB), NOSPLIT, $0-8
	MOVD $probe<>(SB), R9
	MOVD R9, ret+0(FP)
	RET

// probe is a signal handler. The kernel calls it with the signal in R0, its
// siginfo_t in R1 and the context in R2. It counts the signal by origin and goes
// on to the handler that was there before.
TEXT probe<>(SB), NOSPLIT|NOFRAME|TOPFRAME, $0-0
	MOVD $·fromKernel(SB), R9
	MOVWU 8(R1), R10 // si_code
	CMPW $0x80, R10  // SI_KERNEL
	BEQ  count
	MOVD $·fromProcess(SB), R9

count:
	MOVWU R0, R10
	ADD   R10<<2, R9, R9

again:
	LDAXRW (R9), R11
	ADDW   $1, R11
	STLXRW R11, (R9), R12
	CBNZ   R12, again
	MOVD   ·nextHandler(SB), R9
	JMP    (R9)
