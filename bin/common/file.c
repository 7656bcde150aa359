/*
 * Files that are replaced as a whole.
 */
#include "base.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Put a text beside the file, and then in its place, with its owner and mode; or only try whether that can be done.
 * A symbolic link stays, and none leads elsewhere what is written beside.
 */
bool
replace_file(const char *path, const char *contents, bool to_write)
{
	char	   *target = realpath(path, NULL);
	const char *place = target != NULL ? target : path;
	char	   *beside = text_of("%s.new", place);
	struct stat old;
	bool		is_new = stat(place, &old) != 0 && errno == ENOENT;
	int			fd = unlink(beside) == 0 || errno == ENOENT ? open(beside, O_WRONLY | O_CREAT | O_EXCL, is_new ? 0666 : 0600) : -1;
	bool		done = fd >= 0 && (is_new || (fchown(fd, old.st_uid, old.st_gid) == 0 && fchmod(fd, old.st_mode & 07777) == 0));
	int			why;

	for (ssize_t n = 0; done && *contents != '\0'; contents += n)
		done = (n = write(fd, contents, strlen(contents))) > 0;
	done = done && fsync(fd) == 0;
	if (fd >= 0)
		done = close(fd) == 0 && done;
	done = done && (!to_write || rename(beside, place) == 0);
	why = errno;
	if (fd >= 0 && !(done && to_write))
		(void) unlink(beside);
	free(target);
	errno = why;
	return done;
}

/* The same; but what is no file, or may not be replaced, is written in its place. */
bool
write_file(const char *path, const char *contents)
{
	struct stat old;
	FILE	   *file;
	bool		done;

	if (stat(path, &old) != 0 || S_ISREG(old.st_mode))
	{
		if (replace_file(path, contents, true))
			return true;
		if (errno != EACCES && errno != EPERM)
			return false;
	}
	if ((file = fopen(path, "w")) == NULL)
		return false;
	done = fputs(contents, file) >= 0;
	return fclose(file) == 0 && done;
}
