/*
 * The prechecks: everything that would make a move fail, or lose something
 * silently, told before anything is touched.
 *
 * Each check asks the two servers and changes nothing.  All are run and
 * printed, whatever the ones before have found, so that one sees at once all
 * that there is to do.
 */
#include "postgres_fe.h"

#include "snowid-move.h"

static const Check checks[] = {
	{NULL, NULL}
};

bool
run_prechecks(const Move *move)
{
	bool		passed = true;
	PQExpBufferData message;
	PQExpBufferData hint;

	initPQExpBuffer(&message);
	initPQExpBuffer(&hint);
	for (const Check *check = checks; check->name != NULL; check++)
	{
		CheckResult result;

		resetPQExpBuffer(&message);
		resetPQExpBuffer(&hint);
		result = check->run(move, &message, &hint);
		printf("%-8s%s%s%s\n",
			   result == CHECK_OK ? "ok" :
			   result == CHECK_WARNING ? "warning" : "FAILED",
			   check->name, message.len > 0 ? ": " : "", message.data);
		if (hint.len > 0)
			printf("        %s\n", hint.data);
		if (result == CHECK_FAILED)
			passed = false;
	}
	termPQExpBuffer(&message);
	termPQExpBuffer(&hint);
	return passed;
}
