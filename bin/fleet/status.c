/*
 * status: all servers in one view, as a text, as JSON, or as a page.
 *
 * One query makes the document out of all answers.  What contradicts itself, snowid-move audit finds.
 */
#include "fleet.h"
#include "page.inc"
#include "sql/status.inc"

#include <sys/wait.h>

#define AUDIT_MS	60000		/* for audit, which asks twice and more */

/* What snowid-move audit finds, as an array for a query, or why it has found nothing; its exit status. */
static char *
findings(int *status)
{
	const char *argv[] = {"snowid-move", "audit", "--registry", options.registry, NULL};
	int64		end = now_ms() + AUDIT_MS;
	char	   *said = said_by(argv, AUDIT_MS, status);

	if (WIFSIGNALED(*status))
		said = text_of("%s\nFAILED audit %s %d%s; type: snowid-move audit %s", said, now_ms() >= end ? "has not ended in" : "was ended by signal",
					   now_ms() >= end ? AUDIT_MS / 1000 : WTERMSIG(*status), now_ms() >= end ? " s" : "", registry_option());
	return query_text(directory, "SELECT coalesce(jsonb_agg(trim(regexp_replace(f, '\\s+', ' ', 'g'))), '[]') "
					  "FROM regexp_split_to_table(%s, '\\n(?=FAILED|snowid-move: |\\d+ servers)') f "
					  "WHERE f ~ '^FAILED|^snowid-move: (error|fatal)'",
					  here(said));
}

int
command_status(const char *unused, const char *unused_too)
{
	int			status = 0;

	/* What we write ourselves makes nobody lag. */
	run(directory, "SELECT set_config('snowid_fleet.wal', pg_current_wal_lsn()::text, false)");
	ask_servers(options.period);
	run(directory, STATUS_DOCUMENT_SQL, here(without_password("--registry", options.registry)), here(findings(&status)),
		here(registry_option()), here(identity_of(directory)));
	if (options.html != NULL)
	{
		/* Nothing of it ends the script that it stands in. */
		char	   *document = query_text(directory, "SELECT replace(document::text, '<', '\\u003c') FROM document");

		if (!write_file(options.html, text_of("%s%s%s", PAGE_BEGIN, document, PAGE_END)))
			return report_error("could not write \"%s\": %m", options.html), EXIT_USAGE;
	}
	if (options.json)
		puts(query_text(directory, "SELECT document FROM document"));
	else if (options.html == NULL)
		puts(query_text(directory, STATUS_TEXT_SQL, here(registry_option())));
	if (query_bool(directory, "SELECT document @? '$.servers[*] ? (@.follows == false || @.trouble != null)' "
				   "OR document @? '$.findings[0]' FROM document"))
		return EXIT_FAILED;
	return WIFEXITED(status) && WEXITSTATUS(status) <= EXIT_FAILED ? EXIT_DONE : EXIT_FAILED;
}
