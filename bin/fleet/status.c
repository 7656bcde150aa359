/*
 * status: all servers in one view.
 */
#include "fleet.h"

int
command_status(void)
{
	return EXIT_DONE;
}
