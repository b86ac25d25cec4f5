/* embedded_data.S: the bytes of the embedded files and the table over them that embedded.h declares.
 *
 * `embedded.list` is written by the Makefile into the build directory: one line `embed "path"` per file, in order of
 * path.  Each entry is struct rk_embedded {name, data, len}.  The table holds addresses, which a position-independent
 * program relocates when it starts, hence .data.rel.ro (read-only afterwards); the bytes themselves are .rodata.
 */
	.macro	embed path
	.section .rodata
771:	.asciz	"\path"
772:	.incbin	"\path"
773:	.byte	0
	.section .data.rel.ro, "aw"
	.quad	771b, 772b, 773b - 772b
	.endm

	.section .data.rel.ro, "aw"
	.balign	8
	.globl	rk_embedded_files
	.type	rk_embedded_files, @object
rk_embedded_files:
	.include "embedded.list"
	.section .data.rel.ro, "aw"
774:	.size	rk_embedded_files, 774b - rk_embedded_files

	.section .rodata
	.balign	8
	.globl	rk_embedded_count
	.type	rk_embedded_count, @object
	.size	rk_embedded_count, 8
rk_embedded_count:
	.quad	(774b - rk_embedded_files) / 24

	/* Without this note the linker would ask for an executable stack. */
	.section .note.GNU-stack, "", @progbits
