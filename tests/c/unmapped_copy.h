/*
 * Lets the device copy from memory that this process may not access. Other languages call these
 * functions too. Both return 0, or -1 after printing what failed.
 */
#ifndef RDMALAB_UNMAPPED_COPY_H
#define RDMALAB_UNMAPPED_COPY_H

/* Opens the first device, once, and registers a page of memory. */
int register_page(void);

/* Sends a datagram from such memory to this process: it must complete with LOC_PROT_ERR. */
int copy_from_unmapped_memory(void);

#endif
