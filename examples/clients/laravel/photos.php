<?php
// Photos of a user, in the shard where the user lives.
//
//	php photos.php 31341
require_once 'Illuminate/Database/autoload.php';
require_once __DIR__ . '/shards.php';

use Illuminate\Database\Connection;
use Illuminate\Database\Eloquent\Model;

// Eloquent leaves the id out of an INSERT and reads it back with RETURNING; the table's
// DEFAULT makes it.  It is an int, of 64 bits.
class Photo extends Model
{
	public $timestamps = false;
	protected $guarded = [];

	// Of a shard: for a row that is made, or for a query.
	static function of(Connection $db, string $schema, array $row = []): static
	{
		return (new static($row))->setConnection($db->getName())->setTable("$schema.photos");
	}
}

$user = (int) $argv[1];
printf("user %d lives in shard %d\n", $user, shard_of($user));

$first = in_shard_of($user, function ($db, $schema) use ($user) {
	$photo = Photo::of($db, $schema, ['user_id' => $user, 'caption' => 'the first']);
	$photo->save();
	return $photo->id;
});
echo "inserted $first\n";
echo 'in JSON: ', json_encode(['id' => (string) $first]), "\n";

// insert() of many rows is one statement, but tells no ids.
$captions = array_map(fn ($n) => "photo $n", range(1, 1000));
$more = in_shard_of($user, fn ($db, $schema) => $db->select(
	"INSERT INTO $schema.photos (user_id, caption)
	 SELECT ?, caption FROM json_array_elements_text(?) WITH ORDINALITY AS u (caption, n) ORDER BY n RETURNING id",
	[$user, json_encode($captions)]
));
printf("inserted %d more, the last %d\n", count($more), end($more)->id);

$made = in_shard_of($user, fn ($db) => $db->selectOne('SELECT created_at, shard FROM snowid.id_parts(?)', [$first]));
echo "made $made->created_at in shard $made->shard\n";

$found = in_shard_of($user, fn ($db, $schema) => Photo::of($db, $schema)
	->whereRaw("snowid.id_between(id, ?, ?::timestamptz + interval '1 minute')", [$made->created_at, $made->created_at])
	->orderByDesc('id')->get());
printf("in the minute from then: %d photos, the newest %d\n", $found->count(), $found->first()->id);

// The next page has the ids below the last one of this page.
$count = 0;
$last = PHP_INT_MAX;
do {
	$page = in_shard_of($user, fn ($db, $schema) => Photo::of($db, $schema)
		->where('user_id', $user)->where('id', '<', $last)->orderByDesc('id')->limit(400)->pluck('id'));
	$count += $page->count();
	$last = $page->last() ?? $last;
} while ($page->count() === 400);
echo "in pages of 400: $count photos, the oldest $last\n";
