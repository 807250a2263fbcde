/* What the MPI programs share: a check that ends all ranks. */
#include <mpi.h>
#include <stdio.h>

static int rank;

#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "rank %d, line %d: %s does not hold\n", rank, __LINE__,           \
                    #condition);                                                              \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                     \
        }                                                                                     \
    } while (0)
