<?php
// Photos of a user, in the shard where the user lives.
//
//	php photos.php 31341
require_once 'Doctrine/DBAL/autoload.php';
require_once __DIR__ . '/shards.php';

$user = (int) $argv[1];
printf("user %d lives in shard %d\n", $user, shard_of($user));

// insert() tells no id, and lastInsertId() asks a sequence: RETURNING.
$first = in_shard_of($user, fn ($db, $schema) => $db->fetchOne(
	"INSERT INTO $schema.photos (user_id, caption) VALUES (?, ?) RETURNING id", [$user, 'the first']));
echo "inserted $first\n";
echo 'in JSON: ', json_encode(['id' => (string) $first]), "\n";

$captions = array_map(fn ($n) => "photo $n", range(1, 1000));
$more = in_shard_of($user, fn ($db, $schema) => $db->fetchFirstColumn(
	"INSERT INTO $schema.photos (user_id, caption)
	 SELECT ?, caption FROM json_array_elements_text(?) WITH ORDINALITY AS u (caption, n) ORDER BY n RETURNING id",
	[$user, json_encode($captions)]));
printf("inserted %d more, the last %d\n", count($more), end($more));

[$made, $shard] = in_shard_of($user, fn ($db) => $db->fetchNumeric('SELECT created_at, shard FROM snowid.id_parts(?)', [$first]));
echo "made $made in shard $shard\n";

[$count, $newest] = in_shard_of($user, fn ($db, $schema) => $db->createQueryBuilder()
	->select('count(*)', 'max(id)')->from("$schema.photos")
	->where("snowid.id_between(id, :made, CAST(:made AS timestamptz) + interval '1 minute')")->setParameter('made', $made)
	->fetchNumeric());
echo "in the minute from then: $count photos, the newest $newest\n";

// The next page has the ids below the last one of this page.
$count = 0;
$last = PHP_INT_MAX;
do {
	$page = in_shard_of($user, fn ($db, $schema) => $db->fetchFirstColumn(
		"SELECT id FROM $schema.photos WHERE user_id = ? AND id < ? ORDER BY id DESC LIMIT 400", [$user, $last]));
	$count += count($page);
	$last = end($page) ?: $last;
} while (count($page) === 400);
echo "in pages of 400: $count photos, the oldest $last\n";
