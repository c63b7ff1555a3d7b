// Package azurestore keeps records as block blobs in a container of Azure Blob
// Storage.
//
// [Driver] opens "azblob://container/prefix?account=NAME" URLs with the
// credentials that Azure's own tools use; [New] takes a container client that
// the program made. docs/stores/azure.md says which rights that needs, what it
// costs and where its traps are.
//
// A record is one blob and every write one Put Blob with If-None-Match: * or
// If-Match. The version is the blob's ETag, which Azure changes with every write
// (ST4). Each call sends exactly one request; only a Replace or DeleteIf that
// was refused reads once more, to tell an absent key from one at another
// version.
package azurestore
