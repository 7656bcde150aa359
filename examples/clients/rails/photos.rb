# Photos of a user, in the shard where the user lives.
#
#   ruby photos.rb 31341
require_relative "shards"

# Rails leaves the id out of an INSERT and reads it back with RETURNING; the
# table's DEFAULT makes it.
class Photo < ActiveRecord::Base
  self.primary_key = "id"
end

user = Integer(ARGV.fetch(0))

first = in_shard_of(user) do |shard|
  puts "user #{user} lives in shard #{shard}"
  Photo.create!(user_id: user, caption: "the first")
end
puts "inserted #{first.id}"

more = in_shard_of(user) do
  Photo.insert_all!((1..1000).map { |n| { user_id: user, caption: "photo #{n}" } }, returning: :id).to_a
end
puts "inserted #{more.size} more, the last #{more.last['id']}"

made, shard = in_shard_of(user) do
  Photo.where(id: first.id).pick(Arel.sql("snowid.id_timestamp(id)"), Arel.sql("snowid.id_shard(id)"))
end
puts "made #{made.iso8601(3)} in shard #{shard}"

found = in_shard_of(user) do
  Photo.where("snowid.id_between(id, ?, ?)", made, made + 60).order(id: :desc).to_a
end
puts "in the minute from then: #{found.size} photos, the newest #{found.first.id}"

# The next page has the ids below the last one of this page.
count = 0
last = nil
loop do
  page = in_shard_of(user) do
    photos = Photo.where(user_id: user).order(id: :desc).limit(400)
    photos = photos.where("id < ?", last) if last
    photos.ids
  end
  count += page.size
  last = page.last || last
  break if page.size < 400
end
puts "in pages of 400: #{count} photos, the oldest #{last}"
